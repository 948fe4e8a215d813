"""FormulaStates: the states of an array or object, made from what its formulas become with each item or property."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.json_schema.callees import Callee, CalleeState, Transition
from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula
from sgl_runtime.grammar.json_schema.kinds import ByKind
from sgl_runtime.grammar.json_schema.object_rules import KeyClass, ObjectRules
from sgl_runtime.grammar.json_schema.possible_truths import MAX_TRUTHS
from sgl_runtime.grammar.json_schema.questions import Question, Truths
from sgl_runtime.grammar.json_schema.steps import Formulae, Step

if TYPE_CHECKING:
    from sgl_runtime.grammar.json_schema.value_graph import ValueGraph


class TooManyAlternativesError(GrammarError):
    """Alternatives of one value cannot be told apart in reasonable space."""


@dataclass(slots=True)
class _Outcome:
    """What an item or a property asks, and what the formulas become by the label of the answer."""

    question: Question
    after: Sequence[Formulae]


class FormulaStates:
    """Makes the states of one callee.

    Args:
        graph: Answers questions, and counts the states.
        callee: The array or object.
        budget: Limits the states.
    """

    def __init__(self, graph: "ValueGraph", callee: Callee, budget: Budget) -> None:
        self._graph = graph
        self._callee = callee
        self._budget = budget
        self._numbers: dict[tuple[Formulae, int], int] = {}
        self._transitions: dict[tuple[Formulae, KeyClass, int], Transition | None] = {}
        self._outcomes: dict[tuple[Formulae, KeyClass, int], _Outcome | None] = {}
        self._end_labels: dict[Formulae, int | None] = {}

    def add_first(self, formulas: Formulae) -> None:
        """Make the state in which the callee begins."""
        self._add(formulas, 0)

    def build(self, limit: float) -> bool:
        """Make all further states; returns whether there are no more than a limit."""
        states = self._callee.states
        self._numbers = {(states[0].formulas, states[0].position): 0}
        index = 0
        while index < len(states):
            if len(states) > limit:
                return False
            if isinstance(self._callee.rules, ObjectRules):
                self._expand_object(states[index], self._callee.rules)
            else:
                self._expand_array(states[index])
            index += 1
        return True

    def _expand_array(self, state: CalleeState) -> None:
        step = self._graph.array_rules.step(state.formulas)
        self._callee.has_distinct_items |= step.compares_items
        outcome = self._outcome(step)
        if outcome is not None:
            state.transitions.append(self._transition(None, outcome, 0))

    def _expand_object(self, state: CalleeState, rules: ObjectRules) -> None:
        keys, formulas = self._callee.keys, state.formulas
        assert keys is not None
        for key in keys.following(rules.next_names(state.position)):
            moved = rules.moved(state.position, key)
            # States that differ in their position alone share transitions.
            same = (formulas, key, moved)
            if same not in self._transitions:
                try:
                    outcome = self._property_outcome(rules, formulas, key, moved)
                except TooManyAlternativesError:
                    if not rules.waits_for_tags(state.position):
                        raise
                    continue
                self._transitions[same] = None if outcome is None else self._transition(key, outcome, moved)
            transition = self._transitions[same]
            if transition is not None:
                state.transitions.append(transition)

    def _property_outcome(self, rules: ObjectRules, formulas: Formulae, key: KeyClass, moved: int) -> _Outcome | None:
        """The outcome of a property; `moved` are the names that may not come any more behind it."""
        passed = rules.passed_names(formulas, moved)
        same = (formulas, key, passed)
        if same not in self._outcomes:
            self._outcomes[same] = self._outcome(rules.step(formulas, passed, key))
        return self._outcomes[same]

    def _outcome(self, step: Step) -> _Outcome | None:
        """What a step asks and leads to; None where it may not be taken."""
        truths_list = self._graph.possible.of(step.values) if step.values else [()]
        if truths_list is None:
            raise self._too_many_alternatives(step.values)
        labels: dict[Truths, int] = {}
        after: dict[Formulae, int] = {}
        for truths in truths_list:
            formulas = step.after(truths)
            if self._may_end(formulas):
                labels[truths] = after.setdefault(formulas, len(after))
        if not labels:
            return None
        question = self._graph.questions.simplest(step.values, labels, len(truths_list))
        self._graph.answers(question)
        return _Outcome(question, list(after))

    def _transition(self, key: KeyClass | None, outcome: _Outcome, position: int) -> Transition:
        targets: list[int | None] = [self._add(formulas, position) for formulas in outcome.after]
        transition = Transition(key, outcome.question, targets)
        self._callee.transitions.append(transition)
        return transition

    def _too_many_alternatives(self, values: Sequence[ByKind]) -> TooManyAlternativesError:
        reader = self._graph.reader
        places = [place for value in values if (place := reader.place_of(value)) is not None]
        return TooManyAlternativesError(
            f"json_schema: {', '.join(places[:3] or ['#'])} and others are {len(values)} alternatives (anyOf, oneOf)"
            f" of which more than {MAX_TRUTHS} combinations would have to be told apart inside one value; give them a"
            " required property with a const by which they differ"
        )

    def _may_end(self, formulas: Formulae) -> bool:
        """Whether formulas that have become TRUE or FALSE leave some wanted truths."""
        labels = self._callee.labels
        if len(formulas) == 1 and len(labels) == 1:
            (truths,) = labels
            return formulas[0] != (FALSE if truths[0] else TRUE)
        return any(
            all(
                formula not in (TRUE, FALSE) or (formula == TRUE) == truth
                for formula, truth in zip(formulas, truths, strict=True)
            )
            for truths in labels
        )

    def _add(self, formulas: Formulae, position: int) -> int:
        """The number of a state, which is made where it is new."""
        key = (formulas, position)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self._callee.states)
            if formulas not in self._end_labels:
                self._end_labels[formulas] = self._end_label(formulas)
            self._callee.states.append(CalleeState(formulas, position, self._end_labels[formulas]))
            self._graph.num_states += 1
            self._budget.spend()
            self._budget.check_states(self._graph.num_states)
        return known

    def _end_label(self, formulas: Formulae) -> int | None:
        rules, kept = self._callee.rules, self._graph.formulas
        assert rules is not None

        def truth_of(atom: Formula) -> bool:
            return rules.at_end(kept.payload(atom))

        return self._callee.labels.get(tuple(kept.holds(formula, truth_of) for formula in formulas))
