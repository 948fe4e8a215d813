"""ObjectAtoms: the atoms of what an object must still satisfy, sorted by what becomes of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sgl_runtime.grammar.json_schema.atoms import HasProperty, NumProperties, Properties, PropertyNames
from sgl_runtime.grammar.json_schema.formula import TRUE, Formula, Formulas


@dataclass(slots=True)
class ObjectAtoms:
    """The atoms of some formulas.

    Attributes:
        properties: Those that have schemas for properties.
        needed: Those that ask for a property, by the index of its name.
        needed_bits: The indices of these, as bits.
        fewer: What becomes of those that count properties, behind one.
        names: Those about the names of properties, with their payloads.
    """

    properties: list[Formula] = field(default_factory=list)
    needed: dict[int, Formula] = field(default_factory=dict)
    needed_bits: int = 0
    fewer: dict[Formula, Formula] = field(default_factory=dict)
    names: list[tuple[Formula, PropertyNames]] = field(default_factory=list)

    @classmethod
    def of(cls, wanted: Iterable[Formula], formulas: Formulas, index_of: Mapping[str, int]) -> "ObjectAtoms":
        """Sort the atoms of some formulas.

        Args:
            wanted: The formulas.
            formulas: Where they are kept.
            index_of: The index of each name.
        """
        found = cls()
        for atom in formulas.atoms_of(wanted):
            payload = formulas.payload(atom)
            if isinstance(payload, Properties):
                found.properties.append(atom)
            elif isinstance(payload, HasProperty):
                index = index_of[payload.name]
                found.needed[index] = atom
                found.needed_bits |= 1 << index
            elif isinstance(payload, NumProperties):
                least = payload.least - 1
                found.fewer[atom] = formulas.atom(NumProperties(least)) if least else TRUE
            else:
                assert isinstance(payload, PropertyNames)
                found.names.append((atom, payload))
        return found
