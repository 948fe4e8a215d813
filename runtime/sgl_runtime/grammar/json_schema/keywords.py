"""What each keyword of a JSON Schema is to us: enforced, an annotation, or refused.

Words that are no keyword in any draft are annotations, as the specification says; but one that looks like a misspelt
keyword is refused.
"""

import difflib
from collections.abc import Iterable
from functools import lru_cache

from sgl_runtime.grammar.json_schema.literals import type_names
from sgl_runtime.grammar.json_schema.schema_node import SchemaNode

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

# They say nothing about which values are instances.
ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "$schema", "$id", "id", "$comment", "$anchor", "$defs", "definitions", "$vocabulary",
    "$dynamicAnchor", "$recursiveAnchor", "contentEncoding", "contentMediaType", "contentSchema",
})  # fmt: skip

# Each constrains values of the types in front of it, and means nothing for others.
_ENFORCED: dict[tuple[str, ...], frozenset[str]] = {
    ("string",): frozenset({"minLength", "maxLength", "pattern", "format"}),
    ("integer", "number"): frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
    ("array",): frozenset({"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"}),
    ("object",): frozenset({
        "properties", "required", "additionalProperties", "minProperties", "maxProperties",
        "patternProperties", "unevaluatedProperties",
    }),
}  # fmt: skip

_REFUSED: dict[tuple[str, ...], frozenset[str]] = {
    ("array",): frozenset({"contains", "minContains", "maxContains", "unevaluatedItems"}),
    ("object",): frozenset({"propertyNames", "dependencies", "dependentRequired", "dependentSchemas"}),
}

# They hold for values of every type.
_GENERAL = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})
_GENERAL_REFUSED = frozenset({
    "not", "if", "then", "else", "$dynamicRef", "$recursiveRef", "disallow", "extends", "divisibleBy",
})  # fmt: skip
_CUSTOM_PREFIXES = ("x-", "_", "$$", "@")
_MISSPELT = 0.85


def is_annotation(name: str) -> bool:
    """Whether a word says nothing about which values are instances."""
    return name in ANNOTATIONS or not (name in _GENERAL or name in _GENERAL_REFUSED or types_of(name))


def assertions(node: SchemaNode) -> list[str]:
    """The keywords of a subschema that are no annotations."""
    return [name for name in node.value if not is_annotation(name)]


def check_general(node: SchemaNode) -> None:
    """Refuse keywords of no particular type that are not supported, and misspelt ones.

    Raises:
        GrammarError: there is one.
    """
    for name in node.value:
        if name in _GENERAL_REFUSED:
            raise node.error(name, "is a keyword that is not supported")
        if name in ANNOTATIONS or not is_annotation(name) or name.startswith(_CUSTOM_PREFIXES):
            continue
        meant = _likely_meant(name)
        if meant is not None:
            raise node.error(name, f"is not a known keyword; did you mean {meant!r}?")


@lru_cache(maxsize=1024)
def _likely_meant(name: str) -> str | None:
    """The keyword with a meaning for instances that a word resembles most, None if it resembles none."""
    known = sorted(ANNOTATIONS.union(_GENERAL, _GENERAL_REFUSED, *_ENFORCED.values(), *_REFUSED.values()))
    closest = difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELT)
    return closest[0] if closest and closest[0] not in ANNOTATIONS else None


def check_types(node: SchemaNode, types: Iterable[str]) -> None:
    """Refuse keywords that are not supported for the types that the subschema allows.

    Raises:
        GrammarError: there is one.
    """
    for owners, names in _REFUSED.items():
        for name in node.value:
            if name in names and not set(owners).isdisjoint(types):
                raise node.error(name, "is a keyword that is not supported")


def types_of(name: str) -> tuple[str, ...]:
    """The types that a keyword is about, none for keywords of no particular type."""
    for table in (_ENFORCED, _REFUSED):
        for owners, names in table.items():
            if name in names:
                return owners
    return ()


def allowed_types(node: SchemaNode) -> list[str]:
    """The types of a subschema's instances, taken from its other keywords where `type` is absent.

    Raises:
        GrammarError: `type` is malformed; or nothing says which type is meant, so that any JSON value is.
    """
    given = node.value.get("type")
    if given is None and "type" not in node.value:
        about = {owners[-1] for name in node.value if (owners := types_of(name))}
        if not about:
            raise node.error(
                "type", "is missing, and no other keyword says what is meant: any JSON value is not supported"
            )
        return [name for name in TYPES if name in about]
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not names or any(name not in TYPES for name in names):
        raise node.error("type", f"is {given!r}; it must be one of {', '.join(TYPES)}, or a list of them")
    if "number" in names:
        names = [name for name in names if name != "integer"]
    return [name for name in TYPES if name in names]


def has_type(value: object, node: SchemaNode) -> bool:
    """Whether a value is of a type that `type` allows (any, if it is absent)."""
    return "type" not in node.value or not type_names(value).isdisjoint(allowed_types(node))
