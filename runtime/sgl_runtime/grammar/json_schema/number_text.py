"""How JSON numbers are written: the part of a labelled product that knows the syntax of a text.

A number is plain (digits, perhaps with a fraction), or it has an exponent.  Exponents in a window behind a mantissa
with one digit before the point, as most languages print large and small numbers, are told from the others.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np

from sgl_runtime.grammar.graph import Table
from sgl_runtime.grammar.product import Part, with_reach

MINUS, POINT, EXPONENT, PLUS = 10, 11, 12, 13
"""Symbols besides the digits, which are 0 to 9."""
NUM_SYMBOLS = 14
SYMBOL_OF = {
    **{str(digit): digit for digit in range(10)},
    "-": MINUS,
    ".": POINT,
    "e": EXPONENT,
    "E": EXPONENT,
    "+": PLUS,
}

FIRST_LARGE, FIRST_SMALL = 16, -5
LAST_LARGE, LAST_SMALL = 299, -299
# With these no number overflows to infinity: nobody writes mantissas of more than 200 digits before the point.
_MAX_EXPONENT, _MAX_EXPONENT_BEHIND_ONE_DIGIT = 99, 307


class Shape(IntEnum):
    """Marks of the syntax part."""

    INVALID = 0
    INTEGER = 1
    FRACTION = 2  # as it is printed: ".0", or a last digit that is not 0
    LONG_FRACTION = 3  # with zeros at its end; or minus zero
    SMALL = 4  # an exponent in the window of small numbers
    LARGE = 5  # an exponent in the window of large numbers
    WILD = 6  # any other exponent


@dataclass(frozen=True)
class Windows:
    """Exponents, both ends included, of which every number compares alike with all that is asked about.

    Attributes:
        small: From -299 or more to -5.
        large: From 16 to 299 or less.
    """

    small: range
    large: range


def symbols_of(text: str) -> list[int]:
    """The symbols of a number's text."""
    return [SYMBOL_OF[char] for char in text]


@lru_cache(maxsize=64)
def syntax_part(windows: Windows) -> Part:
    """Reads the text of a number; its marks are `Shape`s."""
    builder = _Builder()
    normal, other = (_add_exponents(builder, windows, is_normal=is_normal) for is_normal in (True, False))
    fractions = {}
    for name, exponent in (("normal", normal), ("other", other), ("zero", other)):
        fractions[name] = [builder.add(Shape.INVALID), *(builder.add(shape) for shape in _FRACTION_SHAPES[name])]
        for state in fractions[name][1:]:
            builder.edge(state, EXPONENT, exponent)
    for name, (point, first_zero, last, long) in fractions.items():
        target = fractions["other"][2] if name == "zero" else last
        for state, on_zero in ((point, first_zero), (first_zero, long), (last, long), (long, long)):
            builder.edge(state, 0, on_zero)
            builder.digits(state, target)
    zero, one, many = (builder.add(Shape.INTEGER) for _ in range(3))
    minus, minus_zero = builder.add(Shape.INVALID), builder.add(Shape.INVALID)
    for state, kind in ((zero, "other"), (minus_zero, "zero"), (one, "normal"), (many, "other")):
        builder.edge(state, POINT, fractions[kind][0])
        builder.edge(state, EXPONENT, normal if kind == "normal" else other)
    for start, on_zero in ((0, zero), (minus, minus_zero)):
        builder.edge(start, 0, on_zero)
        builder.digits(start, one)
    builder.edge(0, MINUS, minus)
    for state in (one, many):
        builder.edge(state, 0, many)
        builder.digits(state, many)
    return builder.part()


_FRACTION_SHAPES = {
    "normal": (Shape.FRACTION, Shape.FRACTION, Shape.LONG_FRACTION),
    "other": (Shape.FRACTION, Shape.FRACTION, Shape.LONG_FRACTION),
    "zero": (Shape.LONG_FRACTION, Shape.FRACTION, Shape.LONG_FRACTION),
}


class _Builder:
    """A complete automaton edge by edge; state 0 is the start, state 1 is dead."""

    def __init__(self) -> None:
        self._marks: list[int] = [Shape.INVALID, Shape.INVALID]
        self._edges: list[tuple[int, int, int]] = []

    def add(self, mark: int) -> int:
        self._marks.append(mark)
        return len(self._marks) - 1

    def edge(self, source: int, symbol: int, target: int) -> None:
        self._edges.append((source, symbol, target))

    def digits(self, source: int, target: int) -> None:
        """Edges for the digits from 1 to 9."""
        self._edges.extend((source, digit, target) for digit in range(1, 10))

    def part(self) -> Part:
        table = np.full((len(self._marks), NUM_SYMBOLS), 1, dtype=np.int32)
        source, symbol, target = np.array(self._edges, dtype=np.int32).T
        table[source, symbol] = target
        return with_reach(table, np.array(self._marks, dtype=np.int32))


def _add_exponents(builder: _Builder, windows: Windows, *, is_normal: bool) -> int:
    """Add what may follow an `e`; returns the state behind it."""
    exponents = np.arange(1000)
    most = _MAX_EXPONENT_BEHIND_ONE_DIGIT if is_normal else _MAX_EXPONENT
    above = np.where(exponents <= most, Shape.WILD, Shape.INVALID)
    below = np.full(1000, Shape.WILD)
    if is_normal:
        above[list(windows.large)] = Shape.LARGE
        below[[-each for each in windows.small]] = Shape.SMALL
    start = builder.add(Shape.INVALID)
    for sign, shapes in ((PLUS, above), (MINUS, below)):
        behind_sign = builder.add(Shape.INVALID)
        builder.edge(start, sign, behind_sign)
        first_digits = _add_digits(builder, shapes)
        for digit, state in enumerate(first_digits):
            builder.edge(behind_sign, digit, state)
            if sign == PLUS:
                builder.edge(start, digit, state)
    return start


def _add_digits(builder: _Builder, shapes: Table) -> list[int]:
    """Add states for texts of one to three digits, by the shape that the number they spell has.

    Args:
        builder: Gets the states.
        shapes: (1000,) int, the shape of each number.

    Returns:
        The state behind each first digit.
    """
    # Behind three digits nothing may follow, behind fewer the row of states that one more digit leads to.
    children = np.ones((1000, 0), dtype=np.int64)
    states = np.zeros(0, dtype=np.int64)
    for num_digits in (3, 2, 1):
        size = 10**num_digits
        keys = np.concatenate([shapes[:size, None], children[:size]], axis=1)
        kinds, kind = np.unique(keys, axis=0, return_inverse=True)
        added = []
        for row in kinds.tolist():
            state = builder.add(row[0])
            added.append(state)
            for digit, child in enumerate(row[1:]):
                builder.edge(state, digit, child)
        states = np.array(added)[kind.ravel()]
        children = states.reshape(-1, 10)
    return states.tolist()
