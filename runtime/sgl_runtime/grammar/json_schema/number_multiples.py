"""Multiples of a decimal, and counting digits: parts of a labelled product over the text of a number.

A validator that divides 64-bit floats does not take every multiple of 0.01 for one (0.07 / 0.01 is not 7), so that
a multiple has to be one for it too: where the divisor has an exact float, where the number is whole, and for small
numbers where dividing comes out even.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget, BudgetError
from sgl_runtime.grammar.graph import Indices, distinct_rows
from sgl_runtime.grammar.json_schema.number_text import MINUS, NUM_SYMBOLS, POINT
from sgl_runtime.grammar.product import Part, with_reach

EXACT_DIGITS = 15
"""Decimals with this many digits stay apart from each other when they are read as 64-bit floats."""

# Divisions that are tried out, one for each number up to some size with as many places as the divisor.
_MAX_TRIED = 10**5


@dataclass(frozen=True)
class Divisor:
    """What a number may be a multiple of: numerator / 10 ** places.

    Attributes:
        numerator, places: The divisor in lowest terms.
        rounded: The divisor as a 64-bit float.
        is_exact: Whether the divisor is a 64-bit float.
        keeps_whole: Whether dividing a whole number of up to 15 digits by the divisor's float comes out even where the
            exact division does.
    """

    numerator: int
    places: int
    rounded: float
    is_exact: bool
    keeps_whole: bool

    @classmethod
    def of(cls, value: Decimal) -> "Divisor":
        """The divisor of a positive decimal.

        Raises:
            GrammarError: it is below 1e-300 or above 1e300.
        """
        _, digits, exponent = value.as_tuple()
        numerator = int("".join(map(str, digits)))
        if not isinstance(exponent, int) or abs(value.adjusted()) > 300:
            raise GrammarError(f"json_schema: multipleOf {value} is out of range")
        while numerator % 10 == 0:
            numerator, exponent = numerator // 10, exponent + 1
        exact = Fraction(numerator) * Fraction(10) ** exponent
        rounded = Fraction(float(exact))
        error = abs(rounded / exact - 1)
        return cls(
            numerator * 10 ** max(exponent, 0), max(-exponent, 0), float(exact), error == 0, error <= Fraction(1, 2**54)
        )


def multiples_part(divisor: Divisor, budget: Budget) -> Part:
    """Mark 1 for plain numbers that are exact multiples, 0 for all others.

    A state is the remainder so far, before the point or behind some places of the fraction.
    """
    size, places = divisor.numerator, divisor.places
    broken = size * (places + 2)
    if broken > budget.max_states:
        raise BudgetError(
            f"json_schema: multipleOf {Decimal(size).scaleb(-places)} takes more than {budget.max_states}"
            " automaton states (max_grammar_states)"
        )
    budget.spend(broken)
    remainders = np.arange(size, dtype=np.int64)
    # Block 0 is before the point, block 1 + j behind the point and j places.
    table = np.full((places + 2, size, NUM_SYMBOLS), broken, dtype=np.int64)
    marks = np.zeros(broken + 1, dtype=np.int32)
    following = (remainders[:, None] * 10 + np.arange(10)) % size
    table[0, :, :10] = following
    table[0, :, POINT] = remainders + size
    table[0, :, MINUS] = remainders
    for place in range(places + 1):
        block = place + 1
        if place < places:
            table[block, :, :10] = following + (block + 1) * size
        else:
            table[block, :, 0] = remainders + block * size
        marks[block * size : (block + 1) * size] = remainders * pow(10, places - place, size) % size == 0
    marks[:size] = marks[size : 2 * size]
    rows = np.concatenate([table.reshape(-1, NUM_SYMBOLS), np.full((1, NUM_SYMBOLS), broken)])
    return with_reach(rows.astype(np.int32), marks)


def even_division_part(divisor: Divisor, budget: Budget) -> Part:
    """Mark 1 for plain numbers that were tried out and come out even when they are divided by the divisor's float.

    Numbers with more places than the divisor, and those that are too large, have mark 0.
    """
    places = divisor.places
    num_wholes = _MAX_TRIED // 10**places if places < 6 else 0
    values = np.arange(num_wholes * 10**places) / 10.0**places
    quotients = values / divisor.rounded
    is_even = (quotients == np.rint(quotients)).astype(np.int64)
    states = _States(budget)
    # States behind the point, for each number with so many places, from the last place up.
    two = np.full((2, 10), _UNTRIED)
    behind = states.add(np.arange(2), two, two[:, 0])[is_even]
    for place in range(places - 1, -1, -1):
        own = is_even[:: 10 ** (places - place)]
        behind = states.add(own, behind.reshape(-1, 10), np.full(len(own), _UNTRIED))
    # States before the point, for each whole number, those with the most digits first.
    whole = np.full(num_wholes * 10, _UNTRIED, dtype=np.int64)
    first = num_wholes
    while first > 1:
        first, last = first // 10, first
        numbers = np.arange(first, last)
        children = whole[numbers[:, None] * 10 + np.arange(10)]
        whole[first:last] = states.add(is_even[numbers * 10**places], children, behind[numbers])
    if num_wholes:
        whole[:1] = states.add(is_even[:1], np.full((1, 10), _UNTRIED), behind[:1])
    return states.part(whole[:10] if num_wholes else np.full(10, _UNTRIED))


_START, _UNTRIED = 0, 1


class _States:
    """States that are made from the last symbols to the first, equal ones once."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._rows = [np.full((2, NUM_SYMBOLS), _UNTRIED, dtype=np.int64)]
        self._marks = [np.zeros(2, dtype=np.int64)]
        self._num_states = 2

    def add(self, marks: Indices, on_digits: Indices, on_point: Indices) -> Indices:
        """States with given marks (N,) and next states (N, 10) and (N,); returns the number of each."""
        rows = np.full((len(marks), NUM_SYMBOLS), _UNTRIED, dtype=np.int64)
        rows[:, :10] = on_digits
        rows[:, POINT] = on_point
        kept, kind = distinct_rows(np.concatenate([rows, marks[:, None]], axis=1))
        self._rows.append(rows[kept])
        self._marks.append(marks[kept])
        first = self._num_states
        self._num_states += len(kept)
        self._budget.check_states(self._num_states)
        self._budget.spend(len(kept))
        return first + kind

    def part(self, on_first_digit: Indices) -> Part:
        """The automaton, given where each first digit leads to; a sign makes no difference."""
        table = np.concatenate(self._rows)
        table[_START, :10] = on_first_digit
        table[_START, MINUS] = _START
        return with_reach(table.astype(np.int32), np.concatenate(self._marks).astype(np.int32))


def length_part(places: int) -> Part:
    """How many digits a plain number has: mark 0 for at most `EXACT_DIGITS` - places, 1 for at most `EXACT_DIGITS`.

    Longer numbers have mark 2.
    """
    states = np.arange(EXACT_DIGITS + 2, dtype=np.int32)
    table = np.repeat(states[:, None], NUM_SYMBOLS, axis=1)
    table[:, :10] = np.minimum(states + 1, EXACT_DIGITS + 1)[:, None]
    limits = np.array([max(EXACT_DIGITS - places, 0), EXACT_DIGITS])
    return with_reach(table, np.searchsorted(limits, states).astype(np.int32))
