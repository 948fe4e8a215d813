"""Which ends the states of callees can still reach, and cutting off what leads to none."""

from collections.abc import Set
from typing import TYPE_CHECKING

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.json_schema.callees import Callee, Transition

if TYPE_CHECKING:
    from sgl_runtime.grammar.json_schema.value_graph import ValueGraph


def find_labels(graph: "ValueGraph", budget: Budget) -> None:
    """With which labels each state can end; grows until nothing changes."""
    changed = True
    while changed:
        changed = False
        budget.spend(16)
        for callee in reversed(graph.callees):
            changed |= _find_labels_of(graph, callee)


def _find_labels_of(graph: "ValueGraph", callee: Callee) -> bool:
    # States share transitions, and the states that these lead to were looked at before.
    known: dict[Transition, Set[int]] = {}
    num_labels = len(set(callee.labels.values()))
    changed = False
    for state in reversed(callee.states):
        if len(state.labels) == num_labels:
            continue
        labels = set() if state.end_label is None else {state.end_label}
        for transition in state.transitions:
            if len(labels) == num_labels:
                break
            found = known.get(transition)
            if found is None:
                found = known[transition] = _labels_behind(graph, callee, transition)
            labels |= found
        if not labels <= state.labels:
            state.labels |= labels
            changed = True
    return changed


def _labels_behind(graph: "ValueGraph", callee: Callee, transition: Transition) -> Set[int]:
    possible = graph.possible_labels(transition.question)
    targets = [target for label in possible if (target := transition.targets[label]) is not None]
    if len(targets) == 1:
        return callee.states[targets[0]].labels
    return set().union(*[callee.states[target].labels for target in targets])


def cut_dead_labels(graph: "ValueGraph") -> bool:
    """Stop asking for answers that lead nowhere; returns whether new callees have to be looked at."""
    num_callees = len(graph.callees)
    for callee in graph.callees[:]:
        dead = {each for each in callee.transitions if not _cut(graph, callee, each)}
        if not dead:
            continue
        callee.transitions = [each for each in callee.transitions if each not in dead]
        for state in callee.states:
            state.transitions = [each for each in state.transitions if each not in dead]
    return len(graph.callees) > num_callees


def _cut(graph: "ValueGraph", callee: Callee, transition: Transition) -> bool:
    """Leave out the labels of a transition that lead nowhere; returns whether any is left."""
    possible = graph.possible_labels(transition.question)
    if len(transition.targets) == 1:
        # The only label is kept, or nothing is: the most common case.
        (target,) = transition.targets
        return bool(possible) and target is not None and bool(callee.states[target].labels)
    live = {
        label
        for label, target in enumerate(transition.targets)
        if target is not None and label in possible and callee.states[target].labels
    }
    if live and possible - live:
        labels = tuple((truths, label) for truths, label in transition.question.labels if label in live)
        transition.question = graph.questions.ask(transition.question.values, labels)
        graph.answers(transition.question)
    transition.targets = [target if label in live else None for label, target in enumerate(transition.targets)]
    return bool(live)
