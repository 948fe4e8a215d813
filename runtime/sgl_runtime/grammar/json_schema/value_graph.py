"""ValueGraph: a schema as callees, one for each kind of array or object with what is asked of it.

A callee has states and transitions, one for each item or property; its end carries a label.  Callees refer to each
other by number, so recursion and "any value" are loops.  What can never lead to a wanted end is cut off.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula
from sgl_runtime.grammar.json_schema.key_classes import KeyClasses
from sgl_runtime.grammar.json_schema.kinds import ANY_VALUE, ARRAY, NO_VALUE, NUM_WORDS, NUMBER, OBJECT, STRING, ByKind
from sgl_runtime.grammar.json_schema.questions import (
    WHATEVER,
    Labels,
    Question,
    Truths,
    narrowed,
    possible_truths,
    satisfies,
    simplest,
)
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.rules import NO_NAME, ArrayRules, Formulae, KeyClass, ObjectRules, Step
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.json_schema.strings import StringShape

MAX_COUNTED = 16_384
"""Strings of which no more than the length is asked are made no longer than this."""

_MAX_CUTS = 16

# An object whose free order between lists needs more states than this gets one order.
_STATES_FOR_ORDER = 64
_STATES_FOR_NAME = 4


@dataclass(slots=True)
class Transition:
    """One item, or one property.

    Attributes:
        key: Which property; None for an item.
        question: What is asked of its value.
        targets: State behind it by label; None where that label may not come.
    """

    key: KeyClass | None
    question: Question
    targets: list[int | None]


@dataclass(slots=True)
class CalleeState:
    """Where an array or object stands between two items.

    Attributes:
        formulas: What must still hold.
        position: The names of properties that may not come any more, as bits.
        end_label: Label when it ends here, None where it may not.
        transitions: How it goes on.
        labels: With which labels it can still end.
    """

    formulas: Formulae
    position: int
    end_label: int | None
    transitions: list[Transition] = field(default_factory=list)
    labels: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Callee:
    """An array or object with what is asked of it.

    Attributes:
        kind: ARRAY or OBJECT.
        labels: The wanted truths of its formulas, with their labels.
        states: State 0 is the start.
        keys: How the keys of an object are told apart.
    """

    kind: int
    labels: dict[Truths, int]
    states: list[CalleeState] = field(default_factory=list)
    keys: KeyClasses | None = None
    rules: ArrayRules | ObjectRules | None = None


@dataclass(frozen=True, slots=True)
class CountedStrings:
    """Strings of some lengths.

    Attributes:
        least, most: Limits on the number of characters; no upper one when `most` is None.
        label: Their label.
    """

    least: int
    most: int | None
    label: int


@dataclass(slots=True)
class Answers:
    """The values that have an answer to a question, by kind.

    Attributes:
        words: Label of `null`, `false` and `true`, None where it may not come.
        number, string: Spellings with their labels; None where there are none.
        counted: Strings about which only the length is said, None where there are none.
        labels: The labels of all these.
        callees: Arrays and objects, by the number of their callee.
    """

    words: tuple[int | None, ...]
    number: ByteFragment | None
    string: ByteFragment | None
    counted: "CountedStrings | None"
    labels: frozenset[int]
    callees: list[int]


class ValueGraph:
    """Builds the callees of a schema.

    Args:
        reader: The schema.
        scalars: Automata of strings and numbers.
        budget: Limits states and time.
        any_order: Whether properties may come in any order.
    """

    def __init__(self, reader: SchemaReader, scalars: Scalars, budget: Budget, *, any_order: bool) -> None:
        self.formulas = reader.formulas
        self._reader = reader
        self._scalars = scalars
        self._budget = budget
        self._any_order = any_order
        self._array_rules = ArrayRules(reader)
        self.callees: list[Callee] = []
        self._numbers: dict[tuple[int, Formulae, Labels], int] = {}
        self._answers: dict[Question, Answers] = {}
        self._num_states = 0
        self._next_callee = 0

    def explore(self, question: Question) -> set[int]:
        """Build everything that a question needs; returns the labels that some value has.

        Raises:
            GrammarError: a keyword is malformed or not supported, or the graph is too large.
        """
        self.answers(question)
        for _ in range(_MAX_CUTS):
            self._build_pending()
            self._find_labels()
            if not self._cut_dead_labels():
                break
        return self.possible_labels(question)

    def answers(self, question: Question) -> Answers:
        """The values with an answer."""
        known = self._answers.get(question)
        if known is None:
            known = self._answers[question] = self._find_answers(question)
        return known

    def possible_labels(self, question: Question) -> set[int]:
        """The labels that values have."""
        answers = self.answers(question)
        labels = set(answers.labels)
        for number in answers.callees:
            labels |= self.callees[number].states[0].labels
        return labels

    def _find_answers(self, question: Question) -> Answers:
        words: list[int | None] = []
        for kind in range(NUM_WORDS):
            _, fitting = narrowed([value[kind] for value in question.values], question.labels)
            words.append(fitting[0][1] if fitting else None)
        number, counted = self._scalar(question, NUMBER), self._counted(question)
        string = self._scalar(question, STRING) if counted is None else None
        possible = {label for label in words if label is not None}
        possible.update([] if counted is None else [counted.label])
        for fragment in (number, string):
            if fragment is not None:
                possible.update(label for label in set(fragment.labels.tolist()) if label >= 0)
        callees = []
        for kind in (ARRAY, OBJECT):
            formulas, labels = narrowed([value[kind] for value in question.values], question.labels)
            if labels:
                callees.append(self._callee(kind, formulas, labels))
        return Answers(tuple(words), number, string, counted, frozenset(possible), callees)

    def _scalar(self, question: Question, kind: int) -> ByteFragment | None:
        formulas, labels = narrowed([value[kind] for value in question.values], question.labels)
        if not labels:
            return None
        atoms = self.formulas.atoms_of(formulas)
        by_truths = dict(labels)

        def label_of(truths: Truths) -> int:
            truth_of = dict(zip(atoms, truths, strict=True))
            found = tuple(self.formulas.holds(formula, truth_of.__getitem__) for formula in formulas)
            return by_truths.get(found, -1)

        payloads: tuple[Any, ...] = tuple(self.formulas.payload(atom) for atom in atoms)
        make: Any = self._scalars.strings if kind == STRING else self._scalars.numbers
        try:
            fragment: ByteFragment = make(payloads, label_of, self._budget)
        except GrammarError as error:
            raise self._with_place(error, payloads) from None
        return None if fragment.is_empty else fragment

    def _with_place(self, error: GrammarError, payloads: tuple[Any, ...]) -> GrammarError:
        """An error about one of some atoms, with the place where that was read if it can be found."""
        for payload in payloads:
            node = self._reader.places.get(payload) if isinstance(payload, StringShape) else None
            if node is not None and (len(payloads) == 1 or payload.pattern is not None):
                at_fault = next(name for name in ("pattern", "format", "maxLength", "minLength") if name in node.value)
                return node.error(at_fault, f"cannot be enforced: {error.message}")
        return error

    def _counted(self, question: Question) -> CountedStrings | None:
        formulas, labels = narrowed([value[STRING] for value in question.values], question.labels)
        if len(formulas) != 1 or len(labels) != 1 or not labels[0][0][0]:
            return None
        shape = self.formulas.payload(formulas[0]) if formulas[0] > 0 else None
        if not isinstance(shape, StringShape) or shape.pattern is not None or shape.format is not None:
            return None
        if shape.most is not None and shape.most < shape.least:
            return None
        most = None if shape.most is None else min(shape.most, max(MAX_COUNTED, shape.least))
        return CountedStrings(shape.least, most, labels[0][1])

    def _callee(self, kind: int, formulas: Formulae, labels: Labels) -> int:
        key = (kind, formulas, labels)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.callees)
            callee = Callee(kind, dict(labels))
            if kind == OBJECT:
                rules = ObjectRules(self._reader, formulas, any_order=self._any_order)
                callee.rules = rules
                callee.keys = KeyClasses(rules, self.formulas, self._scalars, self._budget)
                self._add_state(callee, formulas, rules.start, {})
            else:
                callee.rules = self._array_rules
                self._add_state(callee, formulas, 0, {})
            self.callees.append(callee)
        return known

    def _build_pending(self) -> None:
        while self._next_callee < len(self.callees):
            self._build(self.callees[self._next_callee])
            self._next_callee += 1

    def _build(self, callee: Callee) -> None:
        limit: float = math.inf
        if isinstance(callee.rules, ObjectRules) and self._asks_whether(callee):
            needed = callee.rules.needed_names(callee.states[0].formulas)
            if needed is not None:
                self._build_plain(callee, callee.rules, needed)
                return
        if isinstance(callee.rules, ObjectRules):
            limit = _STATES_FOR_ORDER + _STATES_FOR_NAME * len(callee.rules.names)
        if not self._build_states(callee, limit) and isinstance(callee.rules, ObjectRules):
            callee.rules.use_one_order()
            del callee.states[1:]
            callee.states[0].transitions.clear()
            self._build_states(callee, math.inf)

    def _asks_whether(self, callee: Callee) -> bool:
        """Whether what is asked is just whether a formula holds."""
        return len(callee.labels) == 1 and (True,) in callee.labels

    def _build_plain(self, callee: Callee, rules: ObjectRules, needed: int) -> None:
        """The states of an object that needs some properties and has a schema for each: by far the most common one.

        The same states as those of `_build_states`, found with a few operations on bits for each transition.
        """
        keys = callee.keys
        assert keys is not None
        end_label = callee.labels[(True,)]
        questions: dict[KeyClass, Question | None] = {}
        places = [(needed, rules.start)]
        numbers = {places[0]: 0}
        limit = _STATES_FOR_ORDER + _STATES_FOR_NAME * len(rules.names)
        index = 0
        while index < len(places):
            self._budget.spend()
            if len(places) > limit and not rules.has_one_order:
                rules.use_one_order()
                del callee.states[1:], places[1:]
                callee.states[0].transitions.clear()
                numbers = {places[0]: 0}
                index = 0
            missing, position = places[index]
            for key in keys.following(rules.next_names(position)):
                moved = rules.moved(position, key)
                after = missing if key.name == NO_NAME else missing & ~(1 << key.name)
                if after & moved:
                    continue
                if key not in questions:
                    questions[key] = self._question_about(rules.value_of(key))
                question = questions[key]
                if question is None:
                    continue
                target = numbers.setdefault((after, moved), len(places))
                if target == len(places):
                    places.append((after, moved))
                    callee.states.append(CalleeState((), moved, None if after else end_label))
                    self._num_states += 1
                    self._budget.check_states(self._num_states)
                callee.states[index].transitions.append(Transition(key, question, [target]))
            index += 1

    def _question_about(self, value: ByKind) -> Question | None:
        """Whether a value satisfies a formula; None if no value does."""
        if value == NO_VALUE:
            return None
        question = WHATEVER if value == ANY_VALUE else satisfies(value)
        self.answers(question)
        return question

    def _build_states(self, callee: Callee, limit: float) -> bool:
        """Make all states of a callee; returns whether these are no more than a limit."""
        numbers = {(callee.states[0].formulas, callee.states[0].position): 0}
        index = 0
        while index < len(callee.states):
            if len(callee.states) > limit:
                return False
            self._expand(callee, callee.states[index], numbers)
            index += 1
        return True

    def _expand(self, callee: Callee, state: CalleeState, numbers: dict[tuple[Formulae, int], int]) -> None:
        if callee.kind == ARRAY:
            step = self._array_rules.step(state.formulas)
            self._add_transition(callee, state, None, step, state.position, numbers)
            return
        rules, keys = callee.rules, callee.keys
        assert isinstance(rules, ObjectRules) and keys is not None
        for key in keys.following(rules.next_names(state.position)):
            step = rules.step(state.formulas, state.position, key)
            self._add_transition(callee, state, key, step, rules.moved(state.position, key), numbers)

    def _add_transition(
        self,
        callee: Callee,
        state: CalleeState,
        key: KeyClass | None,
        step: Step,
        position: int,
        numbers: dict[tuple[Formulae, int], int],
    ) -> None:
        truths_list = possible_truths(self.formulas, step.values) if step.values else [()]
        labels: dict[Truths, int] = {}
        targets: dict[int, int] = {}
        for truths in truths_list:
            formulas = step.after(truths)
            if self._may_end(callee, formulas):
                target = self._add_state(callee, formulas, position, numbers)
                labels[truths] = targets.setdefault(target, len(targets))
        if labels:
            question = simplest(self.formulas, step.values, labels, len(truths_list))
            state.transitions.append(Transition(key, question, list(targets)))
            self.answers(question)

    def _may_end(self, callee: Callee, formulas: Formulae) -> bool:
        """Whether formulas that have become TRUE or FALSE leave some wanted truths."""
        if len(formulas) == 1 and len(callee.labels) == 1:
            (truths,) = callee.labels
            return formulas[0] != (FALSE if truths[0] else TRUE)
        return any(
            all(
                formula not in (TRUE, FALSE) or (formula == TRUE) == truth
                for formula, truth in zip(formulas, truths, strict=True)
            )
            for truths in callee.labels
        )

    def _add_state(
        self, callee: Callee, formulas: Formulae, position: int, numbers: dict[tuple[Formulae, int], int]
    ) -> int:
        key = (formulas, position)
        known = numbers.get(key)
        if known is None:
            known = numbers[key] = len(callee.states)
            callee.states.append(CalleeState(formulas, position, self._end_label(callee, formulas)))
            self._num_states += 1
            self._budget.spend()
            self._budget.check_states(self._num_states)
        return known

    def _end_label(self, callee: Callee, formulas: Formulae) -> int | None:
        rules = callee.rules
        assert rules is not None

        def truth_of(atom: Formula) -> bool:
            return rules.at_end(self.formulas.payload(atom))

        return callee.labels.get(tuple(self.formulas.holds(formula, truth_of) for formula in formulas))

    def _find_labels(self) -> None:
        """With which labels each state can end; grows until nothing changes."""
        changed = True
        while changed:
            changed = False
            self._budget.spend(16)
            for callee in reversed(self.callees):
                for state in reversed(callee.states):
                    labels = set(self._labels_from(callee, state))
                    if not labels <= state.labels:
                        state.labels |= labels
                        changed = True

    def _labels_from(self, callee: Callee, state: CalleeState) -> Iterator[int]:
        if state.end_label is not None:
            yield state.end_label
        for transition in state.transitions:
            for label in self.possible_labels(transition.question):
                target = transition.targets[label]
                if target is not None:
                    yield from callee.states[target].labels

    def _cut_dead_labels(self) -> bool:
        """Stop asking for answers that lead nowhere; returns whether new callees have to be looked at."""
        num_callees = len(self.callees)
        for callee in self.callees[:]:
            for state in callee.states:
                state.transitions = [each for each in state.transitions if self._cut(callee, each)]
        return len(self.callees) > num_callees

    def _cut(self, callee: Callee, transition: Transition) -> bool:
        """Leave out the labels of a transition that lead nowhere; returns whether any is left."""
        possible = self.possible_labels(transition.question)
        live = [
            label
            for label, target in enumerate(transition.targets)
            if target is not None and label in possible and callee.states[target].labels
        ]
        dead = possible - set(live)
        if dead and live:
            kept = tuple((truths, label) for truths, label in transition.question.labels if label in live)
            transition.question = Question(transition.question.values, kept)
            self.answers(transition.question)
        for label in range(len(transition.targets)):
            if label not in live:
                transition.targets[label] = None
        return bool(live)
