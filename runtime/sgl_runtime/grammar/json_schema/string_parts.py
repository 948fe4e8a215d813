"""What a labelled product of string atoms is made of: patterns, formats and lengths, all over characters."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.alphabet import Alphabet, IntArray
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa
from sgl_runtime.grammar.char_set import EMPTY_SET, CharSet
from sgl_runtime.grammar.json_schema.strings import StringShape
from sgl_runtime.grammar.json_schema.truth import FALSE, TRUE, UNKNOWN, Truth, all_true
from sgl_runtime.grammar.product import Part
from sgl_runtime.grammar.regex import pattern_disputes
from sgl_runtime.grammar.regex_tree import Reader
from sgl_runtime.grammar.unicode_classes import ECMA_SPACE, PYTHON_SPACE

_MAX_LIMITS = 60
# Past this size of a pattern no letters and digits but those of ASCII are used where readers do not agree about what is
# one: telling them apart takes hundreds of byte states for each state.
_MAX_STATES_WITH_LETTERS = 64
_BEYOND_ASCII = CharSet.between("\0", "\x7f").complement()
# The mark of the strings of a language is 1.
_MATCHES = 0b10


@dataclass(frozen=True)
class PatternLanguage:
    """The strings in which a regex matches somewhere.

    Attributes:
        pattern: The regex.
        reader: For whom it matches.
    """

    pattern: str
    reader: Reader


@dataclass(frozen=True)
class FormatLanguage:
    """The strings that have a format.

    Attributes:
        name: The format.
        wide: Whether for some validator, rather than for all.
    """

    name: str
    wide: bool


Language = PatternLanguage | FormatLanguage


@dataclass(frozen=True)
class _Check:
    """A condition of a shape: true where some parts all have fitting marks, false where no part of others has.

    Attributes:
        certain, possible: Numbers of the parts.
        fitting: The fitting marks, as bits.
    """

    certain: tuple[int, ...]
    possible: tuple[int, ...]
    fitting: int

    def truth(self, marks: Sequence[int]) -> Truth:
        if all(self.fitting >> marks[part] & 1 for part in self.certain):
            return TRUE
        return UNKNOWN if any(self.fitting >> marks[part] & 1 for part in self.possible) else FALSE


class StringParts:
    """The conditions of some shapes, each of them once.

    Args:
        shapes: The atoms.
        falsehood: For each of them, whether it matters that it is false and not unknown.
        automaton_of: Gives the automaton of a language; mark 1 is for its strings, 0 for all others.
    """

    def __init__(
        self, shapes: Sequence[StringShape], falsehood: Sequence[bool], automaton_of: Callable[[Language], CharDfa]
    ) -> None:
        limits = {limit for shape in shapes for limit in (shape.least, -1 if shape.most is None else shape.most + 1)}
        self._limits = sorted(limit for limit in limits if limit > 0)
        if len(self._limits) > _MAX_LIMITS:
            raise GrammarError(f"more than {_MAX_LIMITS} different lengths of one string are not supported")
        self._automaton_of = automaton_of
        self._dfas: list[CharDfa] = []
        self._checks: list[list[_Check]] = []
        self._left_out = EMPTY_SET
        for shape, can_be_false in zip(shapes, falsehood, strict=True):
            self._checks.append([*self._languages(shape, can_be_false), *self._lengths(shape)])

    def truths(self, marks: Sequence[int]) -> tuple[Truth, ...]:
        """The truth of each shape by the marks of the parts."""
        return tuple(all_true([check.truth(marks) for check in checks]) for checks in self._checks)

    def truths_of(self, text: str) -> tuple[Truth, ...]:
        """The truth of each shape for a given string."""
        return self.truths([*(int(dfa.accepts(text)) for dfa in self._dfas), bisect_right(self._limits, len(text))])

    def parts(self, chars: CharSet, budget: Budget) -> tuple[Alphabet, list[Part]]:
        """The automata over the characters of a set, in the order of the marks; at least one.

        Raises:
            BudgetError: a length is larger than an automaton may be.
        """
        if self._limits:
            budget.check_states(self._limits[-1])
        alphabet, columns = Alphabet.common([dfa.alphabet for dfa in self._dfas], chars - self._left_out)
        parts = [_complete(dfa, columns[:, at]) for at, dfa in enumerate(self._dfas)]
        if self._limits or not parts:
            parts.append(self._counter(alphabet.num_classes))
        return alphabet, parts

    def _languages(self, shape: StringShape, can_be_false: bool) -> list[_Check]:
        checks: list[_Check] = []
        if shape.pattern is not None:
            disputed = pattern_disputes(shape.pattern) if can_be_false else frozenset()
            readers = (Reader.ECMA, Reader.PYTHON) if disputed else (Reader.ALL,)
            numbers = tuple([self._number(PatternLanguage(shape.pattern, reader)) for reader in readers])
            checks.append(_Check(numbers, numbers, _MATCHES))
            if "s" in disputed:
                # Few texts hold such spaces, and because of them repeats would be counted once for each reader.
                self._left_out |= ECMA_SPACE | PYTHON_SPACE
            if disputed & {"d", "w"} and self._dfas[numbers[0]].num_states > _MAX_STATES_WITH_LETTERS:
                self._left_out |= _BEYOND_ASCII
        if shape.format is not None:
            narrow = self._number(FormatLanguage(shape.format, wide=False))
            wide = self._number(FormatLanguage(shape.format, wide=True)) if can_be_false else narrow
            checks.append(_Check((narrow,), (wide,), _MATCHES))
        return checks

    def _number(self, language: Language) -> int:
        """The number of the part that knows a language; languages of one automaton share a part."""
        dfa = self._automaton_of(language)
        for number, known in enumerate(self._dfas):
            if known is dfa:
                return number
        self._dfas.append(dfa)
        return len(self._dfas) - 1

    def _lengths(self, shape: StringShape) -> list[_Check]:
        """The condition on the length; the part that counts is the last one."""
        if shape.least <= 0 and shape.most is None:
            return []
        first = bisect_right(self._limits, shape.least)
        after = len(self._limits) + 1 if shape.most is None else bisect_right(self._limits, shape.most) + 1
        fitting = ((1 << after) - 1) >> first << first
        return [_Check((-1,), (-1,), fitting)]

    def _counter(self, num_classes: int) -> Part:
        """Counts characters up to the last limit; the mark is the number of limits that are reached."""
        counts = np.arange((self._limits[-1] if self._limits else 0) + 1, dtype=np.int32)
        following = np.minimum(counts + 1, counts[-1])
        marks = np.searchsorted(np.array(self._limits, dtype=np.int32), counts, side="right").astype(np.int32)
        last = np.int64(1 << len(self._limits))
        ahead = (last << np.int64(1)) - np.left_shift(np.int64(1), marks.astype(np.int64))
        return Part(np.repeat(following[:, None], num_classes, axis=1), marks, ahead, is_smallest=True)


def _complete(dfa: CharDfa, columns: IntArray) -> Part:
    """A smallest automaton with its edges for given classes, -1 for those it does not know, and a dead state."""
    dead = dfa.num_states
    table = np.full((dead + 1, dfa.table.shape[1] + 1), dead, dtype=np.int32)
    table[:dead, :-1] = np.where(dfa.table < 0, dead, dfa.table)
    table = table[:, columns]
    marks = np.append(dfa.accepting, False).astype(np.int32)
    # A state of a smallest automaton from which only one mark can come stays in itself.
    stays = (table == np.arange(dead + 1)[:, None]).all(axis=1)
    ahead = np.where(stays, np.left_shift(np.int64(1), marks.astype(np.int64)), np.int64(0b11))
    has_all_classes = bool(np.isin(np.arange(dfa.table.shape[1]), columns).all())
    return Part(table, marks, ahead, is_smallest=has_all_classes)
