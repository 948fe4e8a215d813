"""The atoms about numbers: what one group of keywords asks about a number."""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

MAX_LISTED = 32
"""Longest range of integers that are told apart one by one."""


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
        multiple_of: The number is a multiple of this one, which is above 0; None for any number.
    """

    is_integer: bool
    low: Bound | None = None
    high: Bound | None = None
    multiple_of: Decimal | None = None

    def integers(self) -> list[int] | None:
        """The numbers that are meant, where these are the integers of a range of at most `MAX_LISTED`; else None."""
        if not self.is_integer or self.low is None or self.high is None:
            return None
        if self.high.value - self.low.value > MAX_LISTED:
            return None
        first, last = math.ceil(self.low.value), math.floor(self.high.value)
        first += not self.low.inclusive and first == self.low.value
        last -= not self.high.inclusive and last == self.high.value
        every = Fraction(self.multiple_of or 1)
        return [value for value in range(first, last + 1) if Fraction(value) % every == 0]


ANY_NUMBER = NumberRange(is_integer=False)
ANY_INTEGER = NumberRange(is_integer=True)


@dataclass(frozen=True)
class NumberValues:
    """A number that equals one of some values.

    Attributes:
        values: The numbers.
    """

    values: frozenset[Decimal]


NumberAtom = NumberRange | NumberValues
