"""Rules of arrays and objects: how what must still hold changes with each item or property.

The state inside a container is what its formulas have become; a step asks a question about the next value, and each
answer leads to a state.  (These are derivatives of the formulas with respect to an item.)
"""

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from operator import itemgetter
from typing import Any

from sgl_runtime.grammar.json_schema.atoms import (
    ANYTHING,
    Contains,
    HasProperty,
    Items,
    NumItems,
    NumProperties,
    Properties,
    PropertyNames,
    Unique,
)
from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula, Formulas
from sgl_runtime.grammar.json_schema.kinds import ANY_VALUE, NO_VALUE, NUMBER, STRING, ByKind, all_values
from sgl_runtime.grammar.json_schema.numbers import MAX_LISTED, NumberRange, NumberValues
from sgl_runtime.grammar.json_schema.questions import Truths
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.schema_node import UnsupportedKeywordError
from sgl_runtime.grammar.json_schema.strings import StringValues

Formulae = tuple[Formula, ...]

NO_NAME = -1


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
    """

    values: Sequence[ByKind]
    after: Callable[[Truths], Formulae]


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
        """What the next item asks, and leads to.

        Raises:
            UnsupportedKeywordError: items must be unique and there is no end to what they may be.
        """
        asked = _Asked()
        after: dict[Formula, _After] = {}
        atoms = self._formulas.atoms_of(formulas)
        for atom in atoms:
            payload = self._formulas.payload(atom)
            if isinstance(payload, Unique):
                after[atom] = self._unique(payload, asked, self._candidates(atoms, payload))
            else:
                after[atom] = self._atom_step(payload, asked)

        def after_item(truths: Truths) -> Formulae:
            values = {atom: value_of(truths) for atom, value_of in after.items()}
            return tuple([self._formulas.substitute(formula, values) for formula in formulas])

        return Step(asked.values, after_item)

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

    def _candidates(self, atoms: Sequence[Formula], unique: Unique) -> list[Any]:
        """The values that the next item can have, where they are listed."""
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
                raise UnsupportedKeywordError(
                    unique.place,
                    "can be enforced only where items are listed (enum, const, boolean) or are integers of a range"
                    f" of at most {MAX_LISTED}",
                )
            found += listed or []
        return found

    def _unique(self, unique: Unique, asked: _Asked, candidates: list[Any]) -> _After:
        truths_of = [(json.dumps(value), asked.ask(self._reader.const(value))) for value in candidates]

        def after(truths: Truths) -> Formula:
            for text, truth in truths_of:
                if truth(truths):
                    if text in unique.seen:
                        return FALSE
                    return self._formulas.atom(Unique(unique.place, tuple(sorted((*unique.seen, text)))))
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


@dataclass(slots=True)
class _ObjectAtoms:
    """The atoms of what an object must still satisfy.

    Attributes:
        properties: Those that have schemas for properties.
        needed: Those that ask for a property, by the index of its name.
        needed_bits: The indices of these, as bits.
        others: All others, with their payloads.
    """

    properties: list[Formula] = field(default_factory=list)
    needed: dict[int, Formula] = field(default_factory=dict)
    needed_bits: int = 0
    others: list[tuple[Formula, Hashable]] = field(default_factory=list)


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
        self._atoms: dict[Formulae, _ObjectAtoms] = {}
        self._earlier = [0] * len(self.names) if any_order else self._names_before(lists)

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
        self._earlier = [(1 << index) - 1 for index in range(len(self.names))]
        self.has_one_order = True

    def _names_before(self, lists: list[list[str]]) -> list[int]:
        """For each name, as bits, those that may not come after it: before it in a list, and behind it in none."""
        before = [0] * len(self.names)
        behind = [0] * len(self.names)
        for names in lists:
            bits = [1 << self._index[name] for name in names]
            earlier, later = 0, sum(bits)
            for name, bit in zip(names, bits, strict=True):
                later &= ~bit
                before[self._index[name]] |= earlier
                behind[self._index[name]] |= later
                earlier |= bit
        return [early & ~late for early, late in zip(before, behind, strict=True)]

    def step(self, formulas: Formulae, position: int, key: KeyClass) -> Step:
        """What a property asks, and leads to."""
        atoms = self._atoms.get(formulas)
        if atoms is None:
            atoms = self._atoms[formulas] = self._atoms_of(formulas)
        asked = _Asked()
        # What becomes of atoms whatever the value is; others become FALSE where an answer is no.
        known = {atom: self._after_any(payload, key) for atom, payload in atoms.others}
        passed = self.moved(position, key) & atoms.needed_bits
        while passed:
            # What was passed over cannot come any more.
            index = passed.bit_length() - 1
            known[atoms.needed[index]] = TRUE if index == key.name else FALSE
            passed ^= 1 << index
        conditions: list[tuple[Formula, int]] = []
        for atom in atoms.properties:
            value = self._schema_of(atom, key)
            if value == NO_VALUE:
                known[atom] = FALSE
            elif value != ANY_VALUE:
                conditions.append((atom, asked.number_of(value)))

        def after(truths: Truths) -> Formulae:
            values = known.copy()
            values.update([(atom, FALSE) for atom, number in conditions if not truths[number]])
            return tuple([self._formulas.substitute(formula, values) for formula in formulas])

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
        return all_values(self._formulas, [self._schema_of(atom, key) for atom in self._listing])

    def _atoms_of(self, formulas: Formulae) -> _ObjectAtoms:
        found = _ObjectAtoms()
        for atom in self._formulas.atoms_of(formulas):
            payload = self._formulas.payload(atom)
            if isinstance(payload, Properties):
                found.properties.append(atom)
            elif isinstance(payload, HasProperty):
                index = self._index[payload.name]
                found.needed[index] = atom
                found.needed_bits |= 1 << index
            else:
                found.others.append((atom, payload))
        return found

    def _after_any(self, payload: Hashable, key: KeyClass) -> Formula:
        """What an atom about the number of properties, or about their names, becomes."""
        if isinstance(payload, NumProperties):
            return TRUE if payload.least == 1 else self._formulas.atom(NumProperties(payload.least - 1))
        assert isinstance(payload, PropertyNames)
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
        children = []
        if key.name != NO_NAME:
            child = self._listed[atom].get(self.names[key.name])
            children += [] if child is None else [child]
        if payload.patterns:
            matched = dict(zip(self.patterns, key.truths, strict=False))
            children += [child for pattern, child in payload.patterns if matched[pattern]]
        if not children:
            children.append(payload.additional)
        return all_values(self._formulas, [self._reader.value_of(child) for child in children])
