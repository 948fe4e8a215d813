"""ByKind: what must hold of a JSON value, one formula for each kind of value.

Every keyword of a JSON Schema is about values of one kind or about all; so a schema is a formula for each kind, and
allOf, anyOf, not ... work kind by kind.
"""

from collections.abc import Iterable, Sequence

from sgl_runtime.grammar.json_schema.formula import FALSE, TRUE, Formula, Formulas

KINDS = ("null", "false", "true", "number", "string", "array", "object")
NUMBER, STRING, ARRAY, OBJECT = range(3, 7)
NUM_WORDS = 3
"""The first kinds, `null`, `false` and `true`, are single words: their formulas are TRUE or FALSE."""

ByKind = tuple[Formula, ...]
ANY_VALUE: ByKind = (TRUE,) * len(KINDS)
NO_VALUE: ByKind = (FALSE,) * len(KINDS)


def all_values(formulas: Formulas, parts: Sequence[ByKind]) -> ByKind:
    """What holds where every part does."""
    if len(parts) == 1:
        return parts[0]
    return tuple(formulas.all_of(column) for column in zip(*parts, strict=True)) if parts else ANY_VALUE


def any_value(formulas: Formulas, parts: Sequence[ByKind]) -> ByKind:
    """What holds where some part does."""
    if len(parts) == 1:
        return parts[0]
    return tuple(formulas.any_of(column) for column in zip(*parts, strict=True)) if parts else NO_VALUE


def exactly_one_value(formulas: Formulas, parts: Sequence[ByKind]) -> ByKind:
    """What holds where one part does and the others do not."""
    return tuple(formulas.exactly_one(column) for column in zip(*parts, strict=True)) if parts else NO_VALUE


def no_value(part: ByKind) -> ByKind:
    """What holds where the part does not."""
    return tuple(-formula for formula in part)


def only(kinds: Iterable[int]) -> ByKind:
    """The values of some kinds."""
    wanted = set(kinds)
    return tuple(TRUE if kind in wanted else FALSE for kind in range(len(KINDS)))


def about(kind: int, formula: Formula) -> ByKind:
    """A formula about one kind; values of the other kinds are free."""
    return (*ANY_VALUE[:kind], formula, *ANY_VALUE[kind + 1 :])


def only_kind(kind: int, formula: Formula) -> ByKind:
    """A formula about one kind; values of the other kinds are refused."""
    return (*NO_VALUE[:kind], formula, *NO_VALUE[kind + 1 :])
