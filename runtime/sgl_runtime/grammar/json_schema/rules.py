"""Rules of arrays and objects: how what must still hold changes with each item or property.

The state inside a container is what its formulas have become; a step asks a question about the next value, and each
answer leads to a state.  (These are derivatives of the formulas with respect to an item.)
"""

import json
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter
from typing import Any

from sgl_runtime.grammar.json_schema.atoms import (
    ANYTHING,
    Contains,
    HasProperty,
    Items,
    NumItems,
    Properties,
    PropertyNames,
    Unique,
)
from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula, Formulas
from sgl_runtime.grammar.json_schema.key_order import names_before, one_order, with_first
from sgl_runtime.grammar.json_schema.kinds import ANY_VALUE, NO_VALUE, NUMBER, STRING, ByKind, all_values
from sgl_runtime.grammar.json_schema.numbers import NumberRange, NumberValues
from sgl_runtime.grammar.json_schema.object_atoms import ObjectAtoms
from sgl_runtime.grammar.json_schema.questions import Truths
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.strings import StringValues
from sgl_runtime.grammar.json_schema.tags import tag_names

Formulae = tuple[Formula, ...]

NO_NAME = -1

MAX_REMEMBERED = 8
"""Values up to which an array whose items must differ has states that remember which have come."""


@dataclass(frozen=True, eq=False, slots=True)
class KeyClass:
    """Keys that no rule of one object tells apart.

    Attributes:
        name: Index of the name that the key is, NO_NAME for others.
        truths: Truth of the atoms about keys.
    """

    name: int
    truths: Truths = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One item or property.

    Attributes:
        values: What has to be found out about its value.
        after: What the container's formulas become, by the truths of `values`.
        compares_items: Whether items must differ that are compared while they are written: see `ItemTracker`.
    """

    values: Sequence[ByKind]
    after: Callable[[Truths], Formulae]
    compares_items: bool = False


class _Asked:
    """The formulas that a step asks about, each once."""

    def __init__(self) -> None:
        self.values: list[ByKind] = []
        self._numbers: dict[ByKind, int] = {}

    def ask(self, value: ByKind) -> Callable[[Truths], bool]:
        """Ask about a formula; returns how to find its truth in the answer."""
        if value in (ANY_VALUE, NO_VALUE):
            return lambda truths: value == ANY_VALUE
        return itemgetter(self.number_of(value))

    def number_of(self, value: ByKind) -> int:
        """Ask about a formula that is true of some values and not of others; returns its place in the answer."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number


_After = Callable[[Truths], Formula]


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
        asked = _Asked()
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

    def at_end(self, atom: Hashable) -> bool:
        """Whether an atom about the further items holds when there are none."""
        return isinstance(atom, Items | Unique)

    def _atom_step(self, atom: Hashable, asked: _Asked) -> _After:
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

    def _unique(self, unique: Unique, asked: _Asked, candidates: list[Any]) -> _After:
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


class ObjectRules:
    """How formulas about objects change.

    Properties come once each.  Their order is that of the list in which a schema names them; names of different lists,
    and of none, may come in any order, until `use_one_order` says that all come in the order in which they are named.

    Args:
        reader: The schemas.
        formulas: What the object starts with.
        any_order: Whether the order is free.

    Attributes:
        names: The properties that the formulas speak of, in order.
        patterns: The patterns of property names.
        key_atoms: The atoms about keys: a payload about strings each.
        has_one_order: Whether `use_one_order` was called.
    """

    def __init__(self, reader: SchemaReader, formulas: Formulae, *, any_order: bool) -> None:
        self._reader = reader
        self._formulas = reader.formulas
        self.has_one_order = False
        atoms = self._formulas.atoms_of(formulas)
        payloads = [self._formulas.payload(atom) for atom in atoms]
        self._listing = [atom for atom, each in zip(atoms, payloads, strict=True) if isinstance(each, Properties)]
        listing = [payload for payload in payloads if isinstance(payload, Properties)]
        lists = [[name for name, _ in each.listed[: each.num_ordered]] for each in listing]
        lists += [list(each.required) for each in listing if each.required]
        needed = [payload.name for payload in payloads if isinstance(payload, HasProperty)]
        names = dict.fromkeys(name for names in lists for name in names)
        names.update(dict.fromkeys(needed))
        names.update(dict.fromkeys(name for each in listing for name, _ in each.listed))
        self.names = tuple(names)
        self.patterns = tuple(dict.fromkeys(pattern for each in listing for pattern, _ in each.patterns))
        names_formulas = [payload.formula for payload in payloads if isinstance(payload, PropertyNames)]
        self.key_atoms = tuple(self._formulas.atoms_of(names_formulas))
        self._index = {name: index for index, name in enumerate(self.names)}
        self._listed = {atom: dict(each.listed) for atom, each in zip(self._listing, listing, strict=True)}
        self._values: dict[tuple[Formula, KeyClass], ByKind] = {}
        self._atoms: dict[Formulae, ObjectAtoms] = {}
        # The names that come before all others.
        self._first: list[int] = []
        indices = [[self._index[name] for name in names] for names in lists]
        self._earlier = [0] * len(self.names) if any_order else names_before(indices, len(self.names))

    @property
    def start(self) -> int:
        """Where an object stands before its first property."""
        return 0

    def next_names(self, position: int) -> list[int]:
        """The names that may come, by their index.

        Args:
            position: The names that may not come any more, as bits.
        """
        return [index for index in range(len(self.names)) if not position >> index & 1]

    def moved(self, position: int, key: KeyClass) -> int:
        """Where the object stands after a property."""
        return position if key.name == NO_NAME else position | 1 << key.name | self._earlier[key.name]

    @property
    def is_chain(self) -> bool:
        """Whether all names come in one order."""
        return all(earlier == (1 << index) - 1 for index, earlier in enumerate(self._earlier))

    def use_one_order(self) -> None:
        """Let all names come in the order in which the schemas first name them: that needs fewer states."""
        self._earlier = with_first(one_order(len(self.names)), self._first)
        self.has_one_order = True

    def put_tags_first(self) -> bool:
        """Let names come first by whose values alternatives differ; returns whether some did not before."""
        before = self._earlier
        tags = tag_names(self._reader, self._listed.values())
        self._first = [index for index, name in enumerate(self.names) if name in tags]
        self._earlier = with_first(before, self._first)
        return self._earlier != before

    def waits_for_tags(self, position: int) -> bool:
        """Whether names that were put first may still come."""
        return any(not position >> index & 1 for index in self._first)

    def step(self, formulas: Formulae, position: int, key: KeyClass) -> Step:
        """What a property asks, and leads to."""
        atoms = self._atoms.get(formulas)
        if atoms is None:
            atoms = self._atoms[formulas] = ObjectAtoms.of(formulas, self._formulas, self._index)
        asked = _Asked()
        # What becomes of atoms whatever the value is; others become FALSE where an answer is no.
        known = atoms.fewer | {atom: self._after_name(payload, key) for atom, payload in atoms.names}
        passed = self.moved(position, key) & atoms.needed_bits
        while passed:
            # What was passed over cannot come any more.
            index = passed.bit_length() - 1
            known[atoms.needed[index]] = TRUE if index == key.name else FALSE
            passed ^= 1 << index
        conditions: list[tuple[Formula, ByKind]] = []
        for atom in atoms.properties:
            value = self._schema_of(atom, key)
            if value == NO_VALUE:
                known[atom] = FALSE
            elif value != ANY_VALUE:
                conditions.append((atom, value))
        left = [self._formulas.substitute(formula, known) for formula in formulas]
        # What has no say in these any more is not asked about.
        atoms_left = self._formulas.atom_set(left)
        numbers = [(atom, asked.number_of(value)) for atom, value in conditions if atom in atoms_left]

        def after(truths: Truths) -> Formulae:
            values = {atom: FALSE for atom, number in numbers if not truths[number]}
            return tuple([self._formulas.substitute(formula, values) for formula in left])

        return Step(asked.values, after)

    def at_end(self, atom: Hashable) -> bool:
        """Whether an atom about the further properties holds when there are none."""
        return isinstance(atom, Properties | PropertyNames)

    def needed_names(self, formulas: Formulae) -> int | None:
        """The properties that an object must have, as bits, where its formula asks for nothing but these and schemas.

        None for all other formulas.
        """
        if len(formulas) != 1 or formulas[0] < 0:
            return None
        needed = 0
        for part in self._formulas.parts_of(formulas[0]):
            payload = self._formulas.payload(part)
            if part < 0 or not isinstance(payload, Properties | HasProperty):
                return None
            needed |= 1 << self._index[payload.name] if isinstance(payload, HasProperty) else 0
        return needed

    def value_of(self, key: KeyClass) -> ByKind:
        """What the value of a property must satisfy, for the formulas that `needed_names` knows."""
        return all_values(self._formulas, [self._find_schema(atom, key) for atom in self._listing])

    def _after_name(self, payload: PropertyNames, key: KeyClass) -> Formula:
        """What an atom about the names of properties becomes."""
        truth_of = dict(zip(self.key_atoms, key.truths[len(self.patterns) :], strict=True))
        holds = self._formulas.holds(payload.formula, truth_of.__getitem__)
        return self._formulas.atom(payload) if holds else FALSE

    def _schema_of(self, atom: Formula, key: KeyClass) -> ByKind:
        """What a property's value must satisfy."""
        known = self._values.get((atom, key))
        if known is None:
            known = self._values[atom, key] = self._find_schema(atom, key)
        return known

    def _find_schema(self, atom: Formula, key: KeyClass) -> ByKind:
        payload = self._formulas.payload(atom)
        assert isinstance(payload, Properties)
        listed = None if key.name == NO_NAME else self._listed[atom].get(self.names[key.name])
        children = [] if listed is None else [listed]
        if payload.patterns:
            matched = dict(zip(self.patterns, key.truths, strict=False))
            children += [child for pattern, child in payload.patterns if matched[pattern]]
        if len(children) < 2:
            return self._reader.value_of(children[0] if children else payload.additional)
        return all_values(self._formulas, [self._reader.value_of(child) for child in children])
