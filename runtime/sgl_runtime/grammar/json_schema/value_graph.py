"""ValueGraph: a schema as callees, one for each kind of array or object with what is asked of it.

A callee has states and transitions, one for each item or property; its end carries a label.  Callees refer to each
other by number, so recursion and "any value" are loops.  What can never lead to a wanted end is cut off.
"""

import math
from collections.abc import Set
from dataclasses import dataclass

from sgl_runtime.grammar.budget import Budget, BudgetError
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.json_schema.array_rules import ArrayRules
from sgl_runtime.grammar.json_schema.callees import Callee
from sgl_runtime.grammar.json_schema.char_strings import CharStrings
from sgl_runtime.grammar.json_schema.formula_states import FormulaStates, TooManyAlternativesError
from sgl_runtime.grammar.json_schema.key_classes import KeyClasses
from sgl_runtime.grammar.json_schema.kinds import ANY_VALUE, ARRAY, NO_VALUE, NUM_WORDS, NUMBER, OBJECT, STRING, ByKind
from sgl_runtime.grammar.json_schema.live_labels import cut_dead_labels, find_labels
from sgl_runtime.grammar.json_schema.object_rules import ObjectRules
from sgl_runtime.grammar.json_schema.plain_arrays import build_plain_array
from sgl_runtime.grammar.json_schema.plain_objects import STATES_FOR_NAME, STATES_FOR_ORDER, build_plain
from sgl_runtime.grammar.json_schema.possible_truths import PossibleTruths
from sgl_runtime.grammar.json_schema.questions import Labels, Question, Questions
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.scalar_answers import CountedStrings, ScalarAnswers
from sgl_runtime.grammar.json_schema.scalars import Scalars
from sgl_runtime.grammar.json_schema.steps import Formulae

_MAX_CUTS = 16


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
        short_ways: Whether plain arrays and objects are built without a look at their formulas, to the same states.

    Attributes:
        reader: The schema.
        formulas: Where formulas are kept.
        questions: Where questions are kept.
        possible: Which truths can come together.
        array_rules: How formulas about arrays change.
        callees: What has been found so far.
        num_states: How many states these have.
    """

    def __init__(
        self, reader: SchemaReader, scalars: Scalars, budget: Budget, *, any_order: bool, short_ways: bool = True
    ) -> None:
        self.formulas = reader.formulas
        self.questions = Questions(reader.formulas)
        self.reader = reader
        self._scalars = scalars
        self._budget = budget
        self._any_order = any_order
        self._short_ways = short_ways
        self._scalar_answers = ScalarAnswers(reader, scalars, budget)
        self.possible = PossibleTruths(reader, self._scalar_answers, budget)
        self.array_rules = ArrayRules(reader)
        self.callees: list[Callee] = []
        self._numbers: dict[tuple[int, Formulae, Labels], int] = {}
        self._answers: dict[Question, Answers] = {}
        self.num_states = 0
        self._asked_about: dict[ByKind, Question | None] = {}
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
                rules = ObjectRules(self.reader, formulas, any_order=self._any_order)
                callee.rules = rules
                callee.keys = KeyClasses(rules, self.formulas, self._scalars, self._budget)
                self._formula_states(callee).add_first(formulas)
            else:
                callee.rules = self.array_rules
                self._formula_states(callee).add_first(formulas)
            self.callees.append(callee)
        return known

    def _build_pending(self) -> None:
        while self._next_callee < len(self.callees):
            self._build(self.callees[self._next_callee])
            self._next_callee += 1

    def _build(self, callee: Callee) -> None:
        limit: float = math.inf
        if self._short_ways and self._asks_whether(callee) and self._build_plain(callee):
            return
        if isinstance(callee.rules, ObjectRules):
            limit = float(STATES_FOR_ORDER + STATES_FOR_NAME * len(callee.rules.names))
        num_callees = len(self.callees)
        try:
            is_built = self._formula_states(callee).build(limit)
        except TooManyAlternativesError:
            if not isinstance(callee.rules, ObjectRules) or not callee.rules.put_tags_first():
                raise
            callee.start_again()
            self._forget(num_callees)
            is_built = self._formula_states(callee).build(limit)
        if not is_built and isinstance(callee.rules, ObjectRules):
            callee.rules.use_one_order()
            callee.start_again()
            self._formula_states(callee).build(math.inf)

    def _build_plain(self, callee: Callee) -> bool:
        """Make the states of a callee a short way; returns whether there is one for its formula."""
        formulas = callee.states[0].formulas
        if isinstance(callee.rules, ObjectRules):
            needs = callee.rules.plain_needs(formulas)
            if needs is None:
                return False
            self.num_states += build_plain(self, callee, callee.rules, needs, self._budget)
            return True
        array = self.array_rules.plain(formulas[0])
        if array is None:
            return False
        self.num_states += build_plain_array(self, callee, self.array_rules, array, self._budget)
        return True

    def _forget(self, num_callees: int) -> None:
        """Drop all callees but the first ones, and the answers that refer to them."""
        del self.callees[num_callees:]
        self._asked_about.clear()
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
        if value in self._asked_about:
            return self._asked_about[value]
        question: Question | None = None
        if value != NO_VALUE:
            question = self.questions.whatever if value == ANY_VALUE else self.questions.satisfies(value)
            self.answers(question)
        self._asked_about[value] = question
        return question

    def _formula_states(self, callee: Callee) -> FormulaStates:
        return FormulaStates(self, callee, self._budget)
