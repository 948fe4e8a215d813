"""What each keyword of a JSON Schema is to us: enforced, an annotation, or refused.

Words that are no keyword in any draft are annotations, as the specification says; `likely_meant` finds those that look
like a misspelt keyword, for tools that warn.
"""

import difflib
from functools import lru_cache

from sgl_runtime.grammar.json_schema.schema_node import SchemaNode

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

# They say nothing about which values are instances.
ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "$schema", "$id", "id", "$comment", "$anchor", "$defs", "definitions", "$vocabulary",
    "$dynamicAnchor", "$recursiveAnchor", "contentEncoding", "contentMediaType", "contentSchema",
})  # fmt: skip

ENFORCED = frozenset({
    "type", "enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "then", "else",
    "$ref", "$dynamicRef", "$recursiveRef",
    "minLength", "maxLength", "pattern", "format",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems",
    "contains", "minContains", "maxContains", "unevaluatedItems",
    "properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties",
    "propertyNames", "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties",
})  # fmt: skip

# Keywords of draft 3 and before.
REFUSED = frozenset({"disallow", "extends", "divisibleBy"})
_CUSTOM_PREFIXES = ("x-", "_", "$$", "@")
_MISSPELT = 0.85


def check_general(node: SchemaNode) -> None:
    """Refuse keywords that are not supported.

    Raises:
        GrammarError: there is one.
    """
    if REFUSED.isdisjoint(node.value):
        return
    name = next(name for name in node.value if name in REFUSED)
    raise node.unsupported(name, "is a keyword that is not supported")


def named_types(node: SchemaNode) -> list[str] | None:
    """The types that `type` names, None where it is absent.

    Raises:
        GrammarError: `type` is malformed.
    """
    if "type" not in node.value:
        return None
    given = node.value["type"]
    if isinstance(given, str) and given in TYPES:
        return [given]
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not names or any(name not in TYPES for name in names):
        raise node.error("type", f"is {given!r}; it must be one of {', '.join(TYPES)}, or a list of them")
    return names


@lru_cache(maxsize=4096)
def likely_meant(name: str) -> str | None:
    """The keyword with a meaning for instances that an unknown word resembles most, None if it resembles none."""
    if name in ENFORCED or name in ANNOTATIONS or name.startswith(_CUSTOM_PREFIXES):
        return None
    closest = difflib.get_close_matches(name, sorted(ENFORCED | ANNOTATIONS), n=1, cutoff=_MISSPELT)
    return closest[0] if closest and closest[0] not in ANNOTATIONS else None
