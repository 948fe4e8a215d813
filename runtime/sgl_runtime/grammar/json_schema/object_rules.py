"""Rules of objects: how what must still hold changes with each property; see `steps`."""

from collections.abc import Hashable
from dataclasses import dataclass

from sgl_runtime.grammar.json_schema.atoms import HasProperty, NumProperties, Properties, PropertyNames
from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula
from sgl_runtime.grammar.json_schema.key_order import names_before, one_order, with_first
from sgl_runtime.grammar.json_schema.kinds import ANY_VALUE, NO_VALUE, ByKind, all_values
from sgl_runtime.grammar.json_schema.object_atoms import ObjectAtoms
from sgl_runtime.grammar.json_schema.questions import Truths
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.steps import Asked, Formulae, Step
from sgl_runtime.grammar.json_schema.tags import tag_names

NO_NAME = -1


@dataclass(eq=False, slots=True)
class KeyClass:
    """Keys that no rule of one object tells apart; never changed.

    Attributes:
        name: Index of the name that the key is, NO_NAME for others.
        truths: Truth of the atoms about keys.
    """

    name: int
    truths: Truths = ()


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

    def passed_names(self, formulas: Formulae, position: int) -> int:
        """The names that formulas ask for and that may not come any more, as bits."""
        return position & self._atoms_of(formulas).needed_bits

    def step(self, formulas: Formulae, passed: int, key: KeyClass) -> Step:
        """What a property asks, and leads to.

        Args:
            formulas: What must hold of the object before it.
            passed: The names that these ask for and that may not come any more behind it, the property's own included.
            key: The property.
        """
        atoms = self._atoms_of(formulas)
        asked = Asked()
        # What becomes of atoms whatever the value is; others become FALSE where an answer is no.
        known = atoms.fewer | {atom: self._after_name(payload, key) for atom, payload in atoms.names}
        known |= self._passed(atoms, passed, key)
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

    def _atoms_of(self, formulas: Formulae) -> ObjectAtoms:
        atoms = self._atoms.get(formulas)
        if atoms is None:
            atoms = self._atoms[formulas] = ObjectAtoms.of(formulas, self._formulas, self._index)
        return atoms

    def _passed(self, atoms: ObjectAtoms, passed: int, key: KeyClass) -> dict[Formula, Formula]:
        """What becomes of the atoms that ask for names which came or were passed over, given as bits."""
        values = {}
        while passed:
            # What was passed over cannot come any more.
            index = passed.bit_length() - 1
            values[atoms.needed[index]] = TRUE if index == key.name else FALSE
            passed ^= 1 << index
        return values

    def at_end(self, atom: Hashable) -> bool:
        """Whether an atom about the further properties holds when there are none."""
        return isinstance(atom, Properties | PropertyNames)

    def plain_needs(self, formulas: Formulae) -> Formula | None:
        """What an object must have, where its formula asks for nothing but this and schemas for all of its properties.

        None for all other formulas: alternatives of schemas, and rules about names.
        """
        if len(formulas) != 1:
            return None
        needs = []
        for part in self._formulas.parts_of(formulas[0]):
            if part > 0 and isinstance(self._formulas.payload(part), Properties):
                continue
            payloads = map(self._formulas.payload, self._formulas.atom_set([part]))
            if not all(isinstance(payload, HasProperty | NumProperties) for payload in payloads):
                return None
            needs.append(part)
        return self._formulas.all_of(needs)

    def needed_names(self, needs: Formula) -> int | None:
        """The properties that are needed, as bits, where that is all that an object must have; None for other needs."""
        needed = 0
        for part in self._formulas.parts_of(needs):
            payload = self._formulas.payload(part)
            if part < 0 or not isinstance(payload, HasProperty):
                return None
            needed |= 1 << self._index[payload.name]
        return needed

    def needs_after(self, needs: Formula, position: int, key: KeyClass, known: dict[Hashable, Formula]) -> Formula:
        """What an object must have behind a property.

        Args:
            needs: What it must have before it, of those that `plain_needs` returns.
            position: The names that may not come any more behind it.
            key: The property.
            known: Keeps what was found.
        """
        atoms = self._atoms_of((needs,))
        passed = position & atoms.needed_bits
        if not passed and not atoms.fewer:
            return needs
        same = (needs, passed, 0 if key.name == NO_NAME else passed & 1 << key.name)
        after = known.get(same)
        if after is None:
            values = atoms.fewer | self._passed(atoms, passed, key)
            after = known[same] = self._formulas.substitute(needs, values)
        return after

    def value_of(self, key: KeyClass) -> ByKind:
        """What the value of a property must satisfy, for the formulas that `plain_needs` knows."""
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
