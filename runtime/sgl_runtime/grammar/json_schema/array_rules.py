"""Rules of arrays: how what must still hold changes with each item; see `steps`."""

import json
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sgl_runtime.grammar.json_schema.atoms import ANYTHING, Contains, Items, NumItems, Unique
from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula, Formulas
from sgl_runtime.grammar.json_schema.kinds import NUMBER, STRING, ByKind, all_values
from sgl_runtime.grammar.json_schema.numbers import NumberRange, NumberValues
from sgl_runtime.grammar.json_schema.questions import Truths
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.steps import Asked, Formulae, Step
from sgl_runtime.grammar.json_schema.strings import StringValues

MAX_REMEMBERED = 8
"""Values up to which an array whose items must differ has states that remember which have come."""

_After = Callable[[Truths], Formula]


@dataclass(frozen=True, slots=True)
class PlainArray:
    """An array with a schema for each item by its place, and limits on their number.

    Attributes:
        items: Each group of schemas that items must satisfy.
        least, most: Limits on the number of items; no upper one when `most` is None.
        compares_items: Whether items must differ that are compared while they are written.
    """

    items: Sequence[Items]
    least: int
    most: int | None
    compares_items: bool


class ArrayRules:
    """How formulas about arrays change.

    Args:
        reader: The schemas.
    """

    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader
        self._formulas = reader.formulas

    def step(self, formulas: Formulae) -> Step:
        """What the next item asks, and leads to."""
        asked = Asked()
        after: dict[Formula, _After] = {}
        atoms = self._formulas.atoms_of(formulas)
        compares_items = False
        for atom in atoms:
            payload = self._formulas.payload(atom)
            if isinstance(payload, Unique):
                candidates = self._candidates(atoms)
                if candidates is None or len(candidates) > MAX_REMEMBERED:
                    compares_items = True
                    after[atom] = self._compared(atom, payload, math.inf if candidates is None else len(candidates))
                else:
                    after[atom] = self._unique(payload, asked, candidates)
            else:
                after[atom] = self._atom_step(payload, asked)

        def after_item(truths: Truths) -> Formulae:
            values = {atom: value_of(truths) for atom, value_of in after.items()}
            return tuple([self._formulas.substitute(formula, values) for formula in formulas])

        return Step(asked.values, after_item, compares_items)

    def plain(self, formula: Formula) -> PlainArray | None:
        """A formula as a plain array; None for all others."""
        items: list[Items] = []
        least, most, is_unique = 0, math.inf, False
        for part in self._formulas.parts_of(formula):
            payload = self._formulas.payload(part)
            if part > 0 and isinstance(payload, NumItems):
                least = max(least, payload.least)
            elif isinstance(payload, NumItems):
                # What is negated is one more than there may be.
                most = min(most, payload.least - 1)
            elif part > 0 and isinstance(payload, Items):
                items.append(payload)
            elif part > 0 and isinstance(payload, Unique):
                is_unique = True
            else:
                return None
        if is_unique and any(each.prefix for each in items):
            return None
        if is_unique and self._candidates(self._formulas.atoms_of([formula])) is not None:
            return None
        return PlainArray(items, least, None if most == math.inf else int(most), is_unique)

    def item_of(self, array: PlainArray, index: int) -> ByKind:
        """What an item of a plain array must satisfy."""
        children = [each.prefix[index] if index < len(each.prefix) else each.rest for each in array.items]
        return all_values(self._formulas, [self._reader.value_of(child) for child in children])

    def at_end(self, atom: Hashable) -> bool:
        """Whether an atom about the further items holds when there are none."""
        return isinstance(atom, Items | Unique)

    def _atom_step(self, atom: Hashable, asked: Asked) -> _After:
        if isinstance(atom, Items):
            truth = asked.ask(self._reader.value_of(atom.prefix[0] if atom.prefix else atom.rest))
            rest = Items(atom.prefix[1:], atom.rest)
            kept = TRUE if rest == Items((), ANYTHING) else self._formulas.atom(rest)
            return lambda truths: kept if truth(truths) else FALSE
        if isinstance(atom, NumItems):
            fewer = TRUE if atom.least == 1 else self._formulas.atom(NumItems(atom.least - 1))
            return lambda truths: fewer
        assert isinstance(atom, Contains)
        truth = asked.ask(self._reader.value_of(atom.child))
        same = self._formulas.atom(atom)
        less = TRUE if atom.least == 1 else self._formulas.atom(Contains(atom.child, atom.least - 1))
        return lambda truths: less if truth(truths) else same

    def _candidates(self, atoms: Sequence[Formula]) -> list[Any] | None:
        """The values that the next item can have; None where they are not listed."""
        parts = []
        for atom in atoms:
            payload = self._formulas.payload(atom)
            if isinstance(payload, Items):
                parts.append(self._reader.value_of(payload.prefix[0] if payload.prefix else payload.rest))
        value = all_values(self._formulas, parts)
        found: list[Any] = [
            word for word, formula in zip((None, False, True), value[:3], strict=True) if formula != FALSE
        ]
        for kind in range(NUMBER, len(value)):
            listed = _listed_values(self._formulas, value[kind]) if kind in (NUMBER, STRING) else None
            if listed is None and value[kind] != FALSE:
                return None
            found += listed or []
        return found

    def _compared(self, atom: Formula, unique: Unique, most: float) -> _After:
        """How it stands behind an item that is compared while it is written: of `most` values each comes once."""
        if most == math.inf:
            return lambda truths: atom
        num_items = unique.num_items + 1
        after = FALSE if num_items > most else self._formulas.atom(Unique(unique.seen, num_items))
        return lambda truths: after

    def _unique(self, unique: Unique, asked: Asked, candidates: list[Any]) -> _After:
        truths_of = [(json.dumps(value), asked.ask(self._reader.const(value))) for value in candidates]

        def after(truths: Truths) -> Formula:
            for text, truth in truths_of:
                if truth(truths):
                    if text in unique.seen:
                        return FALSE
                    return self._formulas.atom(Unique(tuple(sorted((*unique.seen, text))), unique.num_items))
            return self._formulas.atom(unique)

        return after


def _listed_values(formulas: Formulas, formula: Formula) -> list[Any] | None:
    """The values that an atom, or the first of several that hold together, lists; None if none does."""
    if formula == FALSE:
        return []
    for atom in formulas.atoms_of([formula]):
        payload = formulas.payload(atom)
        if formulas.all_of([formula, -atom]) != FALSE:
            continue
        if isinstance(payload, StringValues | NumberValues):
            return [float(value) if isinstance(value, Decimal) else value for value in sorted(payload.values)]
        integers = payload.integers() if isinstance(payload, NumberRange) else None
        if integers is not None:
            return integers
    return None
