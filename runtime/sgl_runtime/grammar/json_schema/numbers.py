"""The atoms about numbers: what one group of keywords asks about a number."""

from dataclasses import dataclass
from decimal import Decimal


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


@dataclass(frozen=True)
class NumberValues:
    """A number that equals one of some values.

    Attributes:
        values: The numbers.
    """

    values: frozenset[Decimal]


NumberAtom = NumberRange | NumberValues
