"""JSON integers and numbers, and their bounds as automata over digits.

Bounded numbers are written without an exponent.  Where a bound is exclusive the fraction is cut so short that
numbers next to the bound stay different from it when they are read as 64-bit floats (15 digits).
"""

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

import numpy as np

from sgl_runtime.grammar.alphabet import Alphabet
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.char_dfa import CharDfa, intersect, smallest
from sgl_runtime.grammar.char_set import CharSet
from sgl_runtime.grammar.nfa import Nfa
from sgl_runtime.grammar.regex import regex_to_dfa

_INTEGER = r"0|-?[1-9][0-9]*"
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"
_MAGNITUDE = r"(0|[1-9][0-9]*)"
_EXACT_DIGITS = 15


@dataclass(frozen=True)
class Bound:
    """One end of a range.

    Attributes:
        value: The end.
        inclusive: Whether it belongs to the range.
    """

    value: Decimal
    inclusive: bool


@dataclass(frozen=True)
class NumberRange:
    """What a number must satisfy.

    Attributes:
        is_integer: Whether only integers are meant.
        low, high: Ends of the range, None for none.
        multiple_of: The number is a multiple of this one.
    """

    is_integer: bool
    low: Bound | None = None
    high: Bound | None = None
    multiple_of: Decimal | None = None

    def holds(self, value: int | float) -> bool:
        """Whether a value lies in the range."""
        exact = Decimal(str(value))
        if (self.is_integer and exact % 1 != 0) or (self.multiple_of and exact % self.multiple_of != 0):
            return False
        above = self.low is None or exact > self.low.value or (self.low.inclusive and exact == self.low.value)
        below = self.high is None or exact < self.high.value or (self.high.inclusive and exact == self.high.value)
        return above and below


@dataclass(frozen=True)
class NumberValues:
    """A number that equals one of some values.

    Attributes:
        values: The numbers.
    """

    values: frozenset[Decimal]


NumberAtom = NumberRange | NumberValues


class _Order(Enum):
    LESS = 0
    EQUAL = 1
    GREATER = 2


def number_dfa(wanted: NumberRange, budget: Budget) -> CharDfa:
    """The spellings of the numbers of a range."""
    if wanted.low is None and wanted.high is None and wanted.multiple_of in (None, 1):
        return regex_to_dfa(_INTEGER if wanted.is_integer else _NUMBER, budget)
    nfa = Nfa(budget)
    start, end = nfa.add_states(), nfa.add_states()
    nfa.add_epsilon(nfa.embed(_side(wanted, budget, is_negative=False), start), end)
    minus = nfa.add_text(start, "-")
    nfa.add_epsilon(nfa.embed(_side(wanted, budget, is_negative=True), minus), end)
    return nfa.to_dfa(start, end)


def _side(wanted: NumberRange, budget: Budget, *, is_negative: bool) -> CharDfa:
    """The magnitudes, without sign, of the range's numbers below zero, or of the others."""
    pattern = _MAGNITUDE + ("" if wanted.is_integer else _fraction_pattern(wanted))
    dfa = regex_to_dfa(pattern, budget)
    if wanted.multiple_of is not None:
        dfa = intersect(dfa, _multiples(int(wanted.multiple_of), budget), budget)
    sign = -1 if is_negative else 1
    nearest, farthest = (wanted.high, wanted.low) if is_negative else (wanted.low, wanted.high)
    if is_negative:
        dfa = intersect(dfa, _compared(Decimal(0), {_Order.GREATER}, budget), budget)
    if nearest is not None and nearest.value * sign >= 0:
        dfa = intersect(dfa, _beyond(nearest, _Order.GREATER, budget), budget)
    if farthest is not None:
        if farthest.value * sign < 0:
            return intersect(dfa, regex_to_dfa(r"x", budget), budget)
        dfa = intersect(dfa, _beyond(farthest, _Order.LESS, budget), budget)
    return dfa


def _fraction_pattern(wanted: NumberRange) -> str:
    exclusive = [abs(end.value) for end in (wanted.low, wanted.high) if end is not None and not end.inclusive]
    if not exclusive:
        return r"(\.[0-9]+)?"
    num_digits = _EXACT_DIGITS - max(len(_digits(value)[0]) for value in exclusive)
    return rf"(\.[0-9]{{1,{num_digits}}})?" if num_digits > 0 else ""


def _beyond(end: Bound, side: _Order, budget: Budget) -> CharDfa:
    return _compared(abs(end.value), {side, _Order.EQUAL} if end.inclusive else {side}, budget)


def _digits(value: Decimal) -> tuple[str, str]:
    """The digits before and after the decimal point of a non-negative number."""
    whole, _, fraction = f"{value:f}".partition(".")
    return whole.lstrip("0") or "0", fraction.rstrip("0")


def _compared(bound: Decimal, wanted: set[_Order], budget: Budget) -> CharDfa:
    """Decimals, digits with or without a fraction, whose comparison with a bound has one of the wanted outcomes.

    A state is the number of digits read on this side of the point and how they compare with the bound's so far.
    """
    whole, fraction = _digits(bound)
    numbers: dict[tuple[bool, int, _Order], int] = {}
    rows: list[list[int]] = []
    outcomes: list[_Order] = []

    def number(state: tuple[bool, int, _Order]) -> int:
        if state not in numbers:
            numbers[state] = len(numbers)
            pending.append(state)
        return numbers[state]

    pending: list[tuple[bool, int, _Order]] = []
    number((False, 0, _Order.EQUAL))
    for in_fraction, position, order in pending:
        budget.spend()
        expected = (fraction if in_fraction else whole)[position : position + 1]
        row = []
        for digit in "0123456789":
            if in_fraction:
                after = _compare_digit(order, digit, expected or "0")
                row.append(number((True, min(position + 1, len(fraction)), after)))
            else:
                after = _compare_digit(order, digit, expected) if expected else _Order.GREATER
                row.append(number((False, min(position + 1, len(whole) + 1), after)))
        whole_order = order if in_fraction or position >= len(whole) else _Order.LESS
        row.append(-1 if in_fraction else number((True, 0, whole_order)))
        rows.append(row)
        shorter = in_fraction or position >= len(whole)
        outcomes.append(_ended(order, fraction[position:] if in_fraction else fraction) if shorter else _Order.LESS)
    alphabet, member = Alphabet.from_sets([CharSet.of(char) for char in "0123456789."])
    accepting = np.array([outcome in wanted for outcome in outcomes])
    return smallest(alphabet, np.array(rows, dtype=np.int32)[:, member.argmax(axis=1)], accepting, 0, budget)


def _compare_digit(order: _Order, digit: str, expected: str) -> _Order:
    if order is not _Order.EQUAL or digit == expected:
        return order
    return _Order.LESS if digit < expected else _Order.GREATER


def _ended(order: _Order, rest_of_bound: str) -> _Order:
    """The outcome when the number ends and the bound goes on with some digits of its fraction."""
    return _Order.LESS if order is _Order.EQUAL and rest_of_bound else order


def _multiples(divisor: int, budget: Budget) -> CharDfa:
    """Digit strings that are multiples of a number: a state is the remainder so far."""
    budget.check_states(divisor)
    alphabet, member = Alphabet.from_sets([CharSet.of(char) for char in "0123456789"])
    remainders = np.arange(divisor, dtype=np.int64)[:, None]
    table = (remainders * 10 + member.argmax(axis=1)) % divisor
    return smallest(alphabet, table.astype(np.int32), np.arange(divisor) == 0, 0, budget)
