"""ObjectAtoms: the atoms of what an object must still satisfy, sorted by what becomes of them."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from sgl_runtime.grammar.json_schema.atoms import HasProperty, Properties
from sgl_runtime.grammar.json_schema.formula import Formula, Formulas


@dataclass(slots=True)
class ObjectAtoms:
    """The atoms of some formulas.

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
            else:
                found.others.append((atom, payload))
        return found
