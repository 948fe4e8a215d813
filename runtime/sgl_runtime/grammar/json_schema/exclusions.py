"""Exclusions: which formulas cannot hold of one and the same value, as far as that shows at a glance.

Alternatives that list different values for a property that they need exclude each other, and so do closed objects of
which one lacks what the other needs.  What is not seen here is looked at as if it were possible.
"""

from sgl_runtime.grammar.json_schema.atoms import ANYTHING, Child, HasProperty, Items, NumItems, Properties
from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula
from sgl_runtime.grammar.json_schema.kinds import ARRAY, OBJECT, ByKind
from sgl_runtime.grammar.json_schema.numbers import NumberValues
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.strings import StringValues

_MAX_DEPTH = 4
_MAX_ITEMS = 4


class Exclusions:
    """Compares formulas about one kind of value.

    Args:
        reader: The schemas.
    """

    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader
        self._formulas = reader.formulas
        self._known: dict[tuple[int, Formula, Formula, int], bool] = {}

    def exclude(self, kind: int, first: Formula, second: Formula, depth: int = _MAX_DEPTH) -> bool:
        """Whether two formulas certainly never hold together.

        Args:
            kind: The kind of value that they are about.
            first: One formula.
            second: The other.
            depth: So many levels of values inside are looked at.
        """
        if FALSE in (first, second) or first == -second:
            return True
        if TRUE in (first, second) or first == second:
            return False
        key = (kind, min(first, second), max(first, second), depth)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._compare(kind, first, second, depth)
        return known

    def exclude_values(self, first: ByKind, second: ByKind, depth: int = _MAX_DEPTH) -> bool:
        """Whether certainly no value, of whatever kind, satisfies both formulas."""
        values = enumerate(zip(first, second, strict=True))
        return all(self.exclude(kind, one, other, depth) for kind, (one, other) in values)

    def implies(self, first: Formula, second: Formula) -> bool:
        """Whether all that one formula says is among what another says."""
        return set(self._formulas.parts_of(second)) <= set(self._formulas.parts_of(first))

    def _compare(self, kind: int, first: Formula, second: Formula, depth: int) -> bool:
        for one, other in ((first, second), (second, first)):
            options = self._formulas.parts_of(-one)
            if len(options) > 1:
                return all(self.exclude(kind, -option, other, depth) for option in options)
        parts = self._formulas.parts_of(first), self._formulas.parts_of(second)
        if any(-part in parts[1] for part in parts[0]):
            return True
        if kind == OBJECT:
            return depth > 0 and self._objects(*parts, depth - 1)
        if kind == ARRAY:
            return depth > 0 and self._arrays(*parts, depth - 1)
        listed = [self._listed(each) for each in parts]
        return None not in listed and not frozenset.intersection(*(each or frozenset() for each in listed))

    def _listed(self, parts: tuple[Formula, ...]) -> frozenset[object] | None:
        for part in parts:
            payload = self._formulas.payload(part)
            if part > 0 and isinstance(payload, StringValues | NumberValues):
                return frozenset(payload.values)
        return None

    def _objects(self, first: tuple[Formula, ...], second: tuple[Formula, ...], depth: int) -> bool:
        """Whether some property that one of two objects needs has values in one that it has not in the other."""
        payloads = [[self._formulas.payload(part) for part in parts if part > 0] for parts in (first, second)]
        needed = {each.name for side in payloads for each in side if isinstance(each, HasProperty)}
        schemas = [[each for each in side if isinstance(each, Properties)] for side in payloads]
        return any(
            self._never_both(_child_of(one, name), _child_of(other, name), depth)
            for one in schemas[0]
            for other in schemas[1]
            for name in needed
        )

    def _arrays(self, first: tuple[Formula, ...], second: tuple[Formula, ...], depth: int) -> bool:
        """Whether some item that one of two arrays needs has values in one that it has not in the other."""
        payloads = [[self._formulas.payload(part) for part in parts if part > 0] for parts in (first, second)]
        least = max((each.least for side in payloads for each in side if isinstance(each, NumItems)), default=0)
        schemas = [[each for each in side if isinstance(each, Items)] for side in payloads]
        return any(
            self._never_both(_item_of(one, place), _item_of(other, place), depth)
            for one in schemas[0]
            for other in schemas[1]
            for place in range(min(least, _MAX_ITEMS))
        )

    def _never_both(self, first: Child, second: Child, depth: int) -> bool:
        """Whether no value satisfies two schemas."""
        return self.exclude_values(self._reader.value_of(first), self._reader.value_of(second), depth)


def _child_of(properties: Properties, name: str) -> Child:
    """A schema that the value of a property satisfies."""
    listed = dict(properties.listed).get(name)
    if listed is not None:
        return listed
    # Whether a pattern matches the name is not looked at.
    return ANYTHING if properties.patterns else properties.additional


def _item_of(items: Items, place: int) -> Child:
    return items.prefix[place] if place < len(items.prefix) else items.rest
