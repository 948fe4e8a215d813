"""PossibleTruths: which truths some formulas can have for one and the same value."""

import itertools
from collections.abc import Iterator, Sequence
from decimal import Decimal

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.json_schema.exclusions import Exclusions
from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula
from sgl_runtime.grammar.json_schema.kinds import KINDS, NUMBER, STRING, ByKind
from sgl_runtime.grammar.json_schema.numbers import NumberRange, NumberValues
from sgl_runtime.grammar.json_schema.questions import Truths
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.scalar_answers import ScalarAnswers
from sgl_runtime.grammar.json_schema.strings import StringValues

_MAX_FREE = 8
"""Most formulas about one value of which every combination of truths is taken to be possible."""
MAX_TRUTHS = 1 << _MAX_FREE
"""Most truths that are told apart inside one value."""


class PossibleTruths:
    """Finds the truths that formulas can have, and perhaps more.

    Args:
        reader: The schemas.
        scalars: Knows strings and numbers.
        budget: Limits the work.
    """

    def __init__(self, reader: SchemaReader, scalars: ScalarAnswers, budget: Budget) -> None:
        self._formulas = reader.formulas
        self._scalars = scalars
        self._exclusions = Exclusions(reader)
        self._budget = budget
        self._known: dict[tuple[ByKind, ...], list[Truths] | None] = {}

    def of(self, values: Sequence[ByKind]) -> list[Truths] | None:
        """The truths of some formulas; None: too many to list."""
        if len(values) == 1:
            return [(True,), (False,)]
        key = tuple(values)
        if key not in self._known:
            self._known[key] = self._find(values)
        return self._known[key]

    def _find(self, values: Sequence[ByKind]) -> list[Truths] | None:
        found: set[Truths] = set()
        for kind in range(len(KINDS)):
            truths = self._of_kind(kind, [value[kind] for value in values])
            if truths is None:
                return None
            found.update(truths)
        return sorted(found, reverse=True)

    def _of_kind(self, kind: int, column: list[Formula]) -> Sequence[Truths] | None:
        free = [formula for formula in column if formula not in (TRUE, FALSE)]
        if not free:
            return [tuple(formula == TRUE for formula in column)]
        if kind in (NUMBER, STRING):
            listed = self._of_listed(column)
            if listed is not None:
                return listed
        if len(free) <= _MAX_FREE:
            rows: Iterator[Truths] = itertools.product((True, False), repeat=len(free))
        elif kind in (NUMBER, STRING):
            truths = self._scalars.truths(kind, column)
            return truths if len(truths) <= MAX_TRUTHS else None
        else:
            rows = self._consistent(kind, free)
        at = {index: place for place, index in enumerate(i for i, f in enumerate(column) if f not in (TRUE, FALSE))}
        found = [
            tuple(row[at[index]] if index in at else formula == TRUE for index, formula in enumerate(column))
            for row in itertools.islice(rows, MAX_TRUTHS + 1)
        ]
        return found if len(found) <= MAX_TRUTHS else None

    def _of_listed(self, column: list[Formula]) -> list[Truths] | None:
        """The truths where all atoms list values: those of each listed value, and of all others."""
        listed: set[object] = set()
        sets: dict[Formula, frozenset[object]] = {}
        for atom in self._formulas.atoms_of(column):
            payload = self._formulas.payload(atom)
            integers = payload.integers() if isinstance(payload, NumberRange) else None
            if integers is not None:
                sets[atom] = frozenset(map(Decimal, integers))
            elif isinstance(payload, StringValues | NumberValues):
                sets[atom] = frozenset(payload.values)
            else:
                return None
            listed |= sets[atom]
        found: set[Truths] = set()
        for value in (*listed, None):
            holding = {atom for atom, values in sets.items() if value in values}
            found.add(tuple(self._formulas.holds(formula, holding.__contains__) for formula in column))
        return sorted(found, reverse=True)

    def _consistent(self, kind: int, free: list[Formula]) -> Iterator[Truths]:
        """The truths in which none hold together that exclude each other, and what holding ones imply holds."""
        size = len(free)
        implied, excluded = [0] * size, [0] * size
        for first, second in itertools.product(range(size), repeat=2):
            self._budget.spend()
            if first == second or self._exclusions.implies(free[first], free[second]):
                implied[first] |= 1 << second
            elif self._exclusions.exclude(kind, free[first], free[second]):
                excluded[first] |= 1 << second
        # True and false ones so far, as bits; the next to decide.
        pending = [(0, 0, 0)]
        while pending:
            true, false, index = pending.pop()
            if index == size:
                yield tuple(bool(true >> place & 1) for place in range(size))
                continue
            self._budget.spend()
            if not true >> index & 1:
                pending.append((true, false | 1 << index, index + 1))
            if not (false & implied[index] or true & excluded[index]):
                pending.append((true | implied[index], false | excluded[index], index + 1))
