"""Where a number lies among given constants: the part of a labelled product that compares digit by digit."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal

import numpy as np

from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.json_schema.number_text import (
    EXPONENT,
    FIRST_LARGE,
    FIRST_SMALL,
    LAST_LARGE,
    LAST_SMALL,
    MINUS,
    NUM_SYMBOLS,
    POINT,
    Windows,
)
from sgl_runtime.grammar.json_schema.numbers import Bound, NumberRange
from sgl_runtime.grammar.json_schema.truth import FALSE, TRUE, UNKNOWN, Truth, all_true
from sgl_runtime.grammar.product import Part, with_reach

MAX_RANGES = 4
"""How many ranges one automaton tells apart: its marks are few."""
_MAX_EXPONENT = 400
_EXACT = Context(prec=1000)
_ZERO = Decimal(0)
# Reading decimals as 64-bit floats keeps apart what differs by this much of a constant between 1 and 10; near to zero
# small numbers stay small, but digits have to end somewhere.
_NEAR, _NEAR_ZERO = -14, -15
_FLOAT_WHOLES = 2**53
# Constants that are smaller or larger than these limit the windows of exponents.
_SMALLEST, _LARGEST = Decimal("1e-3"), Decimal("1e15")


def windows_between(constants: Iterable[Decimal]) -> Windows:
    """The exponents of numbers that are all smaller, or all larger, than every constant but zero.

    Args:
        constants: What numbers are compared with.
    """
    sizes = [abs(constant) for constant in constants if constant]
    small = [size.adjusted() + 2 for size in sizes if size < _SMALLEST]
    large = [size.adjusted() - 2 for size in sizes if size >= _LARGEST]
    return Windows(range(max([LAST_SMALL, *small]), FIRST_SMALL + 1), range(FIRST_LARGE, min([LAST_LARGE, *large]) + 1))


class Places:
    """Where a number lies among the bounds of some ranges and what readers cannot tell from them.

    The mark 2 * i + 1 of the automaton means "equal to constant i", 2 * i "between constant i - 1 and constant i".

    Args:
        ranges: At most `MAX_RANGES` ranges, each with whether it matters that it is false and not unknown.

    Attributes:
        constants: Ascending, zero among them.
        positive, negative: Marks of numbers with an exponent, by their sign.

    Raises:
        GrammarError: a bound has too many digits.
    """

    def __init__(self, ranges: Sequence[tuple[NumberRange, bool]]) -> None:
        constants = {_ZERO}
        for wanted, can_be_false in ranges:
            for bound, sign in ((wanted.low, -1), (wanted.high, 1)):
                if bound is None:
                    continue
                if abs(bound.value.adjusted()) > _MAX_EXPONENT or len(bound.value.as_tuple().digits) > _MAX_EXPONENT:
                    raise GrammarError(f"json_schema: the bound {bound.value} is out of range")
                constants.add(bound.value)
                near = _near(bound.value)
                if wanted.is_integer and near < 1 and not can_be_false:
                    # No integer is that near, and other numbers are none of the range anyway.
                    continue
                if not bound.inclusive or _is_rounded(bound):
                    constants.add(_EXACT.subtract(bound.value, sign * near))
                if (bound.inclusive and can_be_false) or _is_rounded(bound):
                    constants.add(_EXACT.add(bound.value, sign * near))
        self.constants = sorted(constants)
        self.positive, self.negative = 2 * len(constants) + 1, 2 * len(constants) + 2

    def part(self, budget: Budget) -> Part:
        """The automaton over the symbols of numbers."""
        zero = self.constants.index(_ZERO)
        above = _Side(self.constants[zero:], self.positive, budget)
        below = _Side([each.copy_abs() for each in reversed(self.constants[: zero + 1])], self.negative, budget)
        above_marks = [mark if mark == self.positive else mark + 2 * zero for mark in above.marks]
        below_marks = [mark if mark == self.negative else 2 * zero + 2 - mark for mark in below.marks]
        first_below = len(above.rows)
        table = np.array(above.rows + [[target + first_below for target in row] for row in below.rows], dtype=np.int32)
        table[0, MINUS] = first_below
        return with_reach(table, np.array(above_marks + below_marks, dtype=np.int32))

    def truth(self, wanted: NumberRange, place: int | Decimal) -> Truth:
        """Whether a number lies between the bounds of a range.

        Args:
            wanted: One of the ranges.
            place: The mark of a plain number, or the exact value of a number that is far from all constants.
        """
        bounds = ((wanted.low, -1), (wanted.high, 1))
        return all_true([self._is_within(bound, sign, place) for bound, sign in bounds if bound is not None])

    def _is_within(self, bound: Bound, sign: int, place: int | Decimal) -> Truth:
        """Whether a number is on the right side of a bound: below it for sign 1, above it for sign -1."""
        if isinstance(place, Decimal):
            return TRUE if (bound.value - place) * sign > 0 else FALSE
        at = 2 * bisect_left(self.constants, bound.value) + 1
        if place == at:
            return UNKNOWN if _is_rounded(bound) else TRUE if bound.inclusive else FALSE
        is_inside = (at - place) * sign > 0
        is_unsure = _is_rounded(bound) or bound.inclusive != is_inside
        end = _EXACT.add(bound.value, _near(bound.value) * (-sign if is_inside else sign))
        end_at = bisect_left(self.constants, end)
        is_near = (place - (2 * end_at + 1)) * (1 if end < bound.value else -1) > 0
        if is_unsure and is_near and self.constants[end_at : end_at + 1] == [end]:
            return UNKNOWN
        return TRUE if is_inside else FALSE


def _near(value: Decimal) -> Decimal:
    """The distance from a constant at which readers surely see a difference."""
    return Decimal(1).scaleb(value.adjusted() + _NEAR if value else _NEAR_ZERO)


def _is_rounded(bound: Bound) -> bool:
    """Whether a bound is a large float that is not exactly the number it is written as."""
    value = bound.value
    return abs(value) >= _FLOAT_WHOLES and value.as_tuple().exponent != 0 and Decimal(float(value)) != value


class _Side:
    """Compares digits, perhaps with a fraction, with constants that are not negative.

    A state of the whole part is how many digits were read and which beginning of a constant they are, or between which
    two they lie.  A state of the fraction is how many digits were read and which constants agree with all of them.

    Attributes:
        rows: Next states by symbol; state 0 is the start.
        marks: By state, 2 * i + 1 for "equal to constant i", 2 * i for "between constant i - 1 and constant i", or
            `exponent_mark`.
    """

    def __init__(self, constants: Sequence[Decimal], exponent_mark: int, budget: Budget) -> None:
        texts = [f"{constant:f}".partition(".") for constant in constants]
        self._wholes = [int(whole) for whole, _, _ in texts]
        self._fractions = [fraction.rstrip("0") for _, _, fraction in texts]
        self._num_places = max(map(len, self._fractions))
        self._budget = budget
        digits = [str(whole) for whole in self._wholes if whole]
        longest = max(map(len, digits), default=0)
        # By number of digits, the beginnings of the constants' whole parts.
        self._beginnings = [
            sorted({int(text[:length]) for text in digits if len(text) >= length > 0}) for length in range(longest + 2)
        ]
        self.rows: list[list[int]] = []
        self.marks: list[int] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._pending: list[tuple[int, tuple[int, ...]]] = []
        start, self._exponent = self._add(0), self._add(exponent_mark)
        zero = self._equal(0)
        # Behind a zero only a point can follow, so that it is as good as the beginning of the fraction.
        self.rows[start][:10] = [self._fraction(0, *zero), *(self._whole(1, digit) for digit in range(1, 10))]
        for number, key in self._pending:
            self._fill(number, key)

    def _add(self, mark: int) -> int:
        """A state with edges to itself."""
        number = len(self.rows)
        self.rows.append([number] * NUM_SYMBOLS)
        self.marks.append(mark)
        self._budget.spend()
        self._budget.check_states(number)
        return number

    def _state(self, key: tuple[int, ...], mark: int) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._add(mark)
            self._pending.append((number, key))
        return number

    def _equal(self, whole: int) -> tuple[int, int]:
        """The range of the constants with a whole part."""
        return bisect_left(self._wholes, whole), bisect_right(self._wholes, whole)

    def _whole(self, num_digits: int, value: int) -> int:
        """The state behind digits that spell `value` and may go on."""
        length = min(num_digits, len(self._beginnings) - 1)
        known = self._beginnings[length]
        at = bisect_left(known, value) if length == num_digits else 0
        is_beginning = at < len(known) and known[at] == value
        first, last = self._equal(value)
        return self._state((0, length, at, value if is_beginning else -1), self._mark(0, first, last))

    def _fraction(self, num_digits: int, first: int, last: int) -> int:
        """The state behind digits of the fraction with which the constants from `first` to before `last` agree."""
        if first == last:
            num_digits = 0
        return self._state((1, min(num_digits, self._num_places), first, last), self._mark(num_digits, first, last))

    def _mark(self, num_digits: int, first: int, last: int) -> int:
        """The place of a text that ends here."""
        return 2 * first + (first < last and not self._fractions[first][num_digits:])

    def _fill(self, number: int, key: tuple[int, ...]) -> None:
        row = self.rows[number]
        row[EXPONENT] = self._exponent
        if key[0] == 1:
            _, num_digits, first, last = key
            following = [self._fractions[at][num_digits : num_digits + 1] or "0" for at in range(first, last)]
            for digit in range(10):
                below = first + bisect_left(following, str(digit))
                up_to = first + bisect_right(following, str(digit))
                row[digit] = self._fraction(num_digits + 1, below, up_to)
            return
        _, length, at, value = key
        if value < 0:
            # Any number between the two beginnings.
            value = self._beginnings[length][at - 1] + 1 if at else 10 ** (length - 1)
        row[POINT] = self._fraction(0, *self._equal(value))
        row[:10] = [self._whole(length + 1, value * 10 + digit) for digit in range(10)]
