"""Which ends the states of callees can still reach, and cutting off what leads to none."""

from typing import TYPE_CHECKING

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.json_schema.callees import Callee, Transition
from sgl_runtime.grammar.json_schema.questions import Question

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
    known: dict[int, set[int]] = {}
    changed = False
    for state in reversed(callee.states):
        labels = set() if state.end_label is None else {state.end_label}
        for transition in state.transitions:
            found = known.get(id(transition))
            if found is None:
                found = known[id(transition)] = _labels_behind(graph, callee, transition)
            labels |= found
        if not labels <= state.labels:
            state.labels |= labels
            changed = True
    return changed


def _labels_behind(graph: "ValueGraph", callee: Callee, transition: Transition) -> set[int]:
    labels: set[int] = set()
    for label in graph.possible_labels(transition.question):
        target = transition.targets[label]
        if target is not None:
            labels |= callee.states[target].labels
    return labels


def cut_dead_labels(graph: "ValueGraph") -> bool:
    """Stop asking for answers that lead nowhere; returns whether new callees have to be looked at."""
    num_callees = len(graph.callees)
    for callee in graph.callees[:]:
        kept: dict[int, bool] = {}
        for state in callee.states:
            for transition in state.transitions:
                if id(transition) not in kept:
                    kept[id(transition)] = _cut(graph, callee, transition)
            state.transitions = [each for each in state.transitions if kept[id(each)]]
    return len(graph.callees) > num_callees


def _cut(graph: "ValueGraph", callee: Callee, transition: Transition) -> bool:
    """Leave out the labels of a transition that lead nowhere; returns whether any is left."""
    possible = graph.possible_labels(transition.question)
    live = {
        label
        for label, target in enumerate(transition.targets)
        if target is not None and label in possible and callee.states[target].labels
    }
    if live and possible - live:
        labels = tuple((truths, label) for truths, label in transition.question.labels if label in live)
        transition.question = Question(transition.question.values, labels)
        graph.answers(transition.question)
    transition.targets = [target if label in live else None for label, target in enumerate(transition.targets)]
    return bool(live)
