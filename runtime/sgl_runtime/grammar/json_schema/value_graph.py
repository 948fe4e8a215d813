"""ValueGraph: a schema as callees, one for each kind of array or object with what is asked of it.

A callee has states and transitions, one for each item or property; its end carries a label.  Callees refer to each
other by number, so recursion and "any value" are loops.  What can never lead to a wanted end is cut off.
"""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget, BudgetError
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.array_rules import ArrayRules
from sgl_runtime.grammar.json_schema.callees import Callee, CalleeState, Transition
from sgl_runtime.grammar.json_schema.char_strings import CharStrings
from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula
from sgl_runtime.grammar.json_schema.key_classes import KeyClasses
from sgl_runtime.grammar.json_schema.kinds import ANY_VALUE, ARRAY, NO_VALUE, NUM_WORDS, NUMBER, OBJECT, STRING, ByKind
from sgl_runtime.grammar.json_schema.live_labels import cut_dead_labels, find_labels
from sgl_runtime.grammar.json_schema.object_rules import KeyClass, ObjectRules
from sgl_runtime.grammar.json_schema.plain_arrays import build_plain_array
from sgl_runtime.grammar.json_schema.plain_objects import STATES_FOR_NAME, STATES_FOR_ORDER, build_plain
from sgl_runtime.grammar.json_schema.possible_truths import MAX_TRUTHS, PossibleTruths
from sgl_runtime.grammar.json_schema.questions import Labels, Question, Questions, Truths
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.scalar_answers import CountedStrings, ScalarAnswers
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.json_schema.steps import Formulae, Step

_MAX_CUTS = 16


class TooManyAlternativesError(GrammarError):
    """Alternatives of one value cannot be told apart in reasonable space."""


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
    string: ByteFragment | CharStrings | None
    counted: CountedStrings | None
    labels: frozenset[int]
    callees: list[int]


class ValueGraph:
    """Builds the callees of a schema.

    Args:
        reader: The schema.
        scalars: Automata of strings and numbers.
        budget: Limits states and time.
        any_order: Whether properties may come in any order.

    Attributes:
        formulas: Where formulas are kept.
        questions: Where questions are kept.
        callees: What has been found so far.
    """

    def __init__(self, reader: SchemaReader, scalars: Scalars, budget: Budget, *, any_order: bool) -> None:
        self.formulas = reader.formulas
        self.questions = Questions(reader.formulas)
        self._reader = reader
        self._scalars = scalars
        self._budget = budget
        self._any_order = any_order
        self._scalar_answers = ScalarAnswers(reader, scalars, budget)
        self._possible = PossibleTruths(reader, self._scalar_answers, budget)
        self._array_rules = ArrayRules(reader)
        self.callees: list[Callee] = []
        self._numbers: dict[tuple[int, Formulae, Labels], int] = {}
        self._answers: dict[Question, Answers] = {}
        self._num_states = 0
        self._next_callee = 0

    def explore(self, question: Question) -> Set[int]:
        """Build everything that a question needs; returns the labels that some value has.

        Raises:
            GrammarError: a keyword is malformed or not supported, or the graph is too large.
        """
        self.answers(question)
        for _ in range(_MAX_CUTS):
            self._build_pending()
            find_labels(self, self._budget)
            if not cut_dead_labels(self):
                return self.possible_labels(question)
        raise BudgetError(f"json_schema: its alternatives are still not told apart after {_MAX_CUTS} rounds")

    def answers(self, question: Question) -> Answers:
        """The values with an answer."""
        known = self._answers.get(question)
        if known is None:
            known = self._answers[question] = self._find_answers(question)
        return known

    def possible_labels(self, question: Question) -> Set[int]:
        """The labels that values have."""
        answers = self.answers(question)
        if not answers.callees:
            return answers.labels
        return answers.labels.union(*[self.callees[number].states[0].labels for number in answers.callees])

    def _find_answers(self, question: Question) -> Answers:
        by_kind = question.by_kind()
        words = tuple([labels[0][1] if labels else None for _, labels in by_kind[:NUM_WORDS]])
        number, counted = self._scalar_answers.numbers(by_kind[NUMBER]), self._scalar_answers.counted(by_kind[STRING])
        string = self._scalar_answers.strings(by_kind[STRING]) if counted is None else None
        possible = {label for label in words if label is not None}
        possible.update(() if counted is None else (counted.label,))
        possible.update(() if number is None else number.label_set)
        possible.update(() if string is None else string.label_set)
        callees = [self._callee(kind, *by_kind[kind]) for kind in (ARRAY, OBJECT) if by_kind[kind][1]]
        return Answers(words, number, string, counted, frozenset(possible), callees)

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
        if self._asks_whether(callee) and self._build_plain(callee):
            return
        if isinstance(callee.rules, ObjectRules):
            limit = float(STATES_FOR_ORDER + STATES_FOR_NAME * len(callee.rules.names))
        num_callees = len(self.callees)
        try:
            is_built = self._build_states(callee, limit)
        except TooManyAlternativesError:
            if not isinstance(callee.rules, ObjectRules) or not callee.rules.put_tags_first():
                raise
            callee.start_again()
            self._forget(num_callees)
            is_built = self._build_states(callee, limit)
        if not is_built and isinstance(callee.rules, ObjectRules):
            callee.rules.use_one_order()
            callee.start_again()
            self._build_states(callee, math.inf)

    def _build_plain(self, callee: Callee) -> bool:
        """Make the states of a callee a short way; returns whether there is one for its formula."""
        formulas = callee.states[0].formulas
        if isinstance(callee.rules, ObjectRules):
            needs = callee.rules.plain_needs(formulas)
            if needs is None:
                return False
            self._num_states += build_plain(self, callee, callee.rules, needs, self._budget)
            return True
        array = self._array_rules.plain(formulas[0])
        if array is None:
            return False
        self._num_states += build_plain_array(self, callee, self._array_rules, array, self._budget)
        return True

    def _forget(self, num_callees: int) -> None:
        """Drop all callees but the first ones, and the answers that refer to them."""
        del self.callees[num_callees:]
        self._numbers = {key: number for key, number in self._numbers.items() if number < num_callees}
        self._answers = {
            question: answers
            for question, answers in self._answers.items()
            if all(number < num_callees for number in answers.callees)
        }

    def _asks_whether(self, callee: Callee) -> bool:
        """Whether what is asked is just whether a formula holds."""
        return len(callee.labels) == 1 and (True,) in callee.labels

    def question_about(self, value: ByKind) -> Question | None:
        """Whether a value satisfies a formula; None if no value does."""
        if value == NO_VALUE:
            return None
        question = self.questions.whatever if value == ANY_VALUE else self.questions.satisfies(value)
        self.answers(question)
        return question

    def _build_states(self, callee: Callee, limit: float) -> bool:
        """Make all states of a callee; returns whether these are no more than a limit."""
        numbers = {(callee.states[0].formulas, callee.states[0].position): 0}
        known: dict[tuple[Formulae, KeyClass, int], Transition | None] = {}
        index = 0
        while index < len(callee.states):
            if len(callee.states) > limit:
                return False
            self._expand(callee, callee.states[index], numbers, known)
            index += 1
        return True

    def _expand(
        self,
        callee: Callee,
        state: CalleeState,
        numbers: dict[tuple[Formulae, int], int],
        known: dict[tuple[Formulae, KeyClass, int], Transition | None],
    ) -> None:
        """Make the transitions of a state, and the states that these lead to."""
        if callee.kind == ARRAY:
            step = self._array_rules.step(state.formulas)
            callee.has_distinct_items |= step.compares_items
            transition = self._transition(callee, None, step, 0, numbers)
            state.transitions += [] if transition is None else [transition]
            return
        rules, keys = callee.rules, callee.keys
        assert isinstance(rules, ObjectRules)
        assert keys is not None
        for key in keys.following(rules.next_names(state.position)):
            moved = rules.moved(state.position, key)
            # States that differ in their position alone share transitions.
            same = (state.formulas, key, moved)
            if same not in known:
                step = rules.step(state.formulas, state.position, key)
                try:
                    known[same] = self._transition(callee, key, step, moved, numbers)
                except TooManyAlternativesError:
                    if not rules.waits_for_tags(state.position):
                        raise
                    continue
            transition = known[same]
            if transition is not None:
                state.transitions.append(transition)

    def _transition(
        self,
        callee: Callee,
        key: KeyClass | None,
        step: Step,
        position: int,
        numbers: dict[tuple[Formulae, int], int],
    ) -> Transition | None:
        """What an item or a property asks and leads to; None where it may not come."""
        truths_list = self._possible.of(step.values) if step.values else [()]
        if truths_list is None:
            raise self._too_many_alternatives(step.values)
        labels: dict[Truths, int] = {}
        targets: dict[int, int] = {}
        for truths in truths_list:
            formulas = step.after(truths)
            if self._may_end(callee, formulas):
                target = self._add_state(callee, formulas, position, numbers)
                labels[truths] = targets.setdefault(target, len(targets))
        if not labels:
            return None
        question = self.questions.simplest(step.values, labels, len(truths_list))
        self.answers(question)
        transition = Transition(key, question, list(targets))
        callee.transitions.append(transition)
        return transition

    def _too_many_alternatives(self, values: Sequence[ByKind]) -> TooManyAlternativesError:
        places = [place for value in values if (place := self._reader.place_of(value)) is not None]
        return TooManyAlternativesError(
            f"json_schema: {', '.join(places[:3] or ['#'])} and others are {len(values)} alternatives (anyOf, oneOf)"
            f" of which more than {MAX_TRUTHS} combinations would have to be told apart inside one value; give them a"
            " required property with a const by which they differ"
        )

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
