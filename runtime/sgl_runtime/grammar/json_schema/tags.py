"""Tags: names of properties by whose values the alternatives of an object differ."""

from collections.abc import Iterable, Mapping
from itertools import combinations, starmap
from math import comb

from sgl_runtime.grammar.json_schema.atoms import ANYTHING, Child
from sgl_runtime.grammar.json_schema.exclusions import Exclusions
from sgl_runtime.grammar.json_schema.formula import FALSE, Formulas
from sgl_runtime.grammar.json_schema.kinds import NUMBER, ByKind
from sgl_runtime.grammar.json_schema.numbers import NumberValues
from sgl_runtime.grammar.json_schema.reader import SchemaReader
from sgl_runtime.grammar.json_schema.strings import StringValues

_MAX_VALUES = 128


def tag_names(reader: SchemaReader, listings: Iterable[Mapping[str, Child]]) -> set[str]:
    """The names that have listed values in every listing, or else other values in one listing than in most others.

    Args:
        reader: The schemas.
        listings: Schemas of properties by name, one mapping for each alternative.
    """
    exclusions = Exclusions(reader)
    values: dict[str, set[ByKind]] = {}
    for listing in listings:
        for name, child in listing.items():
            if child != ANYTHING:
                values.setdefault(name, set()).add(reader.value_of(child))
    return {
        name
        for name, found in values.items()
        if 1 < len(found) <= _MAX_VALUES
        and (
            all(_is_listed(reader.formulas, value) for value in found)
            or 2 * sum(starmap(exclusions.exclude_values, combinations(found, 2))) >= comb(len(found), 2)
        )
    }


def _is_listed(formulas: Formulas, value: ByKind) -> bool:
    """Whether values are words, and numbers and strings that are listed."""
    return all(
        formula == FALSE or (formula > 0 and isinstance(formulas.payload(formula), StringValues | NumberValues))
        for formula in value[NUMBER:]
    )
