"""The automata of JSON numbers, by what is asked about them.

A plain number has no exponent.  Where something is asked, numbers have an exponent only in windows in which all
answers are alike, as languages print them (1e-06, 1.5e+20).  Answers hold for exact decimals and for readers that round
to 64-bit floats; where the two differ the answer is unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.fragment import ByteFragment
from sgl_runtime.grammar.graph import trim_labelled
from sgl_runtime.grammar.json_schema.number_bounds import MAX_RANGES, Places, windows_between
from sgl_runtime.grammar.json_schema.number_multiples import (
    Divisor,
    even_division_part,
    length_part,
    multiples_part,
)
from sgl_runtime.grammar.json_schema.number_text import SYMBOL_OF, Shape, symbols_of, syntax_part
from sgl_runtime.grammar.json_schema.numbers import NumberAtom, NumberRange, NumberValues
from sgl_runtime.grammar.json_schema.overlay import overlay
from sgl_runtime.grammar.json_schema.truth import FALSE, TRUE, UNKNOWN, Truth, TruthLabels, all_true
from sgl_runtime.grammar.minimize import minimize_labelled
from sgl_runtime.grammar.product import Part, labelled_product

_FLOAT_WHOLES = 2**53
_ONE = Decimal(1)
_EXACT = Context(prec=1000)
_LONG = Decimal("1e15")
_SMALLEST_DIVISOR = Decimal("1e-3")


def number_fragment(
    atoms: Sequence[NumberAtom], labels: TruthLabels, usable_bytes: NDArray[np.bool_], budget: Budget
) -> ByteFragment:
    """The JSON numbers that have a label.

    Args:
        atoms: What is asked about a number.
        labels: The labels by the truth of each atom.
        usable_bytes: (256,) bool, the bytes to spell with.
        budget: Limits of the compilation.

    Raises:
        GrammarError: a constant is out of range, or the budget does not suffice.
    """
    question = _Question(atoms, [labels.needs_falsehood(at) for at in range(len(atoms))], budget)
    values = sorted({value for atom in atoms if isinstance(atom, NumberValues) for value in atom.values})
    texts = {
        text.encode(): labels.label(question.truths(question.marks(text), value))
        for value in values
        for text in _printed(value)
        if usable_bytes[list(text.encode())].all()
    }

    def label_of(marks: tuple[int, ...]) -> int:
        return -1 if marks[0] == Shape.INVALID else labels.label(question.truths(marks, None))

    table, found = labelled_product(question.parts, label_of, budget)
    bytewise = np.full((len(table), 256), -1, dtype=np.int32)
    for char, symbol in SYMBOL_OF.items():
        if usable_bytes[ord(char)]:
            bytewise[:, ord(char)] = table[:, symbol]
    if not usable_bytes[[ord(char) for char in SYMBOL_OF]].all():
        bytewise, found = minimize_labelled(*trim_labelled(bytewise, found, 0, budget), budget)
    return overlay(ByteFragment.of(bytewise, found), texts, budget)


class _Question:
    """What is asked about a number: the parts of the product, and what their marks say.

    Args:
        atoms: The atoms.
        falsehood: For each of them, whether it matters that it is false and not unknown.
        budget: Limits of the compilation.

    Attributes:
        parts: The automata; the first one is the syntax, with a `Shape` as its mark.
    """

    def __init__(self, atoms: Sequence[NumberAtom], falsehood: Sequence[bool], budget: Budget) -> None:
        self._atoms = atoms
        self._falsehood = falsehood
        asked = list(zip(atoms, falsehood, strict=True))
        ranges = [(atom, can_be_false) for atom, can_be_false in asked if isinstance(atom, NumberRange)]
        excluded = [
            value
            for atom, can_be_false in asked
            if isinstance(atom, NumberValues) and can_be_false
            for value in atom.values
        ]
        self._excludes_long = any(abs(value) >= _LONG for value in excluded)
        bounded = [each for each in ranges if each[0].low is not None or each[0].high is not None]
        groups = [Places(bounded[at : at + MAX_RANGES]) for at in range(0, len(bounded), MAX_RANGES)]
        self._windows = windows_between([*(each for group in groups for each in group.constants), *excluded])
        self.parts = [syntax_part(self._windows)]
        places_at = [(group, self._add(group.part(budget))) for group in groups]
        self._places = {atom: places_at[at // MAX_RANGES] for at, (atom, _) in enumerate(bounded)}
        self._divisors: dict[Decimal, _DivisorMarks] = {}
        needs_length = bool(excluded)
        for atom, can_be_false in ranges:
            wanted = [] if atom.multiple_of is None else [atom.multiple_of]
            for value in [*wanted, *([_ONE] if atom.is_integer and can_be_false else [])]:
                divisor = self._divisor(value, budget)
                if not divisor.is_exact and not atom.is_integer:
                    self._divisor(_ONE, budget)
                needs_length = needs_length or can_be_false or not (atom.is_integer and divisor.is_exact)
        # A quotient is exact to about 15 digits, those of the divisor's places among them.
        places = max((known.divisor.places for known in self._divisors.values()), default=0)
        self._length_at = self._add(length_part(places)) if needs_length else -1

    def marks(self, text: str) -> tuple[int, ...]:
        """The marks of a text."""
        symbols = symbols_of(text)
        marks = []
        for part in self.parts:
            state = 0
            for symbol in symbols:
                state = int(part.table[state, symbol])
            marks.append(int(part.marks[state]))
        return tuple(marks)

    def truths(self, marks: tuple[int, ...], value: Decimal | None) -> tuple[Truth, ...]:
        """The truth of each atom for numbers with some marks.

        Args:
            marks: The mark of each part.
            value: Which of the atoms' values the number is, written as it is printed; None for any other text.
        """
        return tuple(
            self._range(atom, marks, can_be_false=can_be_false)
            if isinstance(atom, NumberRange)
            else self._is_one_of(atom, marks, value, can_be_false=can_be_false)
            for atom, can_be_false in zip(self._atoms, self._falsehood, strict=True)
        )

    def _add(self, part: Part) -> int:
        self.parts.append(part)
        return len(self.parts) - 1

    def _divisor(self, value: Decimal, budget: Budget) -> Divisor:
        """A divisor, with the parts that know it."""
        if value not in self._divisors:
            divisor = Divisor.of(value)
            exact_at = self._add(multiples_part(divisor, budget))
            even_at = -1 if divisor.is_exact else self._add(even_division_part(divisor, budget))
            self._divisors[value] = _DivisorMarks(divisor, exact_at, even_at)
        return self._divisors[value].divisor

    def _is_long(self, marks: tuple[int, ...], *, in_quotients: bool = False) -> bool:
        """Whether a number has too many digits for a float; `in_quotients`, for a float that it is divided to."""
        return self._length_at < 0 or marks[self._length_at] > (0 if in_quotients else 1)

    def _range(self, atom: NumberRange, marks: tuple[int, ...], *, can_be_false: bool) -> Truth:
        shape = marks[0]
        if atom == NumberRange(is_integer=False):
            return TRUE
        if shape == Shape.WILD:
            return UNKNOWN
        truths = []
        if atom.low is not None or atom.high is not None:
            truths.append(self._bounds(atom, marks))
        if atom.is_integer and shape != Shape.INTEGER:
            truths.append(self._multiple(_ONE, marks) if can_be_false else FALSE)
            # To some drafts of JSON Schema 1.0 is an integer, to others it is not.
            truths[-1] = UNKNOWN if truths[-1] == TRUE else truths[-1]
        if atom.multiple_of is not None:
            truths.append(self._multiple(atom.multiple_of, marks))
        return all_true(truths)

    def _bounds(self, atom: NumberRange, marks: tuple[int, ...]) -> Truth:
        """Whether a number lies between the bounds of a range."""
        places, part = self._places[atom]
        if marks[0] not in (Shape.SMALL, Shape.LARGE):
            return places.truth(atom, marks[part])
        # Any number with an exponent in a window compares like any other.
        exponent = self._windows.small.start if marks[0] == Shape.SMALL else self._windows.large.start
        return places.truth(atom, Decimal(-5 if marks[part] == places.negative else 5).scaleb(exponent))

    def _multiple(self, value: Decimal, marks: tuple[int, ...]) -> Truth:
        """Whether a number is a multiple of a divisor."""
        if marks[0] == Shape.LARGE:
            return UNKNOWN
        if marks[0] == Shape.SMALL:
            return FALSE if value >= _SMALLEST_DIVISOR else UNKNOWN
        known = self._divisors[value]
        if marks[known.exact_at] == 0:
            return UNKNOWN if self._is_long(marks, in_quotients=True) else FALSE
        if known.divisor.is_exact:
            agrees = marks[0] == Shape.INTEGER or not self._is_long(marks)
        elif known.even_at >= 0 and marks[known.even_at] == 1:
            agrees = True
        else:
            whole = self._divisors.get(_ONE)
            is_whole = marks[0] == Shape.INTEGER or (whole is not None and marks[whole.exact_at] == 1)
            agrees = is_whole and known.divisor.keeps_whole and not self._is_long(marks)
        return TRUE if agrees else UNKNOWN

    def _is_one_of(
        self, atom: NumberValues, marks: tuple[int, ...], value: Decimal | None, *, can_be_false: bool
    ) -> Truth:
        """Whether a number is one of some values; a text that only spells one of them differently is not known."""
        if value is not None:
            return TRUE if value in atom.values else FALSE
        if not can_be_false:
            return FALSE
        if marks[0] in (Shape.SMALL, Shape.LARGE):
            return FALSE
        if marks[0] == Shape.INTEGER:
            return UNKNOWN if self._is_long(marks) and self._excludes_long else FALSE
        return FALSE if marks[0] == Shape.FRACTION and not self._is_long(marks) else UNKNOWN


@dataclass(frozen=True)
class _DivisorMarks:
    """A divisor, and the numbers of the parts that know it (-1 for none)."""

    divisor: Divisor
    exact_at: int
    even_at: int


def _printed(value: Decimal) -> set[str]:
    """How programs print a number: as an integer, as a float (with or without an exponent), or as both."""
    as_float = repr(float(value))
    texts = {as_float} if Decimal(as_float) == value else {f"{value:f}"}
    if value != value.to_integral_value():
        texts.add(f"{value.normalize(_EXACT):f}")
    elif abs(value) <= _FLOAT_WHOLES or value.as_tuple().exponent == 0:
        texts.add(str(int(value)))
    return texts - {"-0", "-0.0"}
