"""check_schema: finds what can be no JSON Schema where the gen is built; the server checks what it can enforce."""

from collections.abc import Mapping
from typing import Any

from sgl.errors import ArgumentError

TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
SCHEMA_KEYWORDS = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
SCHEMA_LIST_KEYWORDS = ("anyOf", "oneOf", "allOf", "prefixItems")
SCHEMA_MAP_KEYWORDS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
COUNT_KEYWORDS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


def check_schema(schema: Any, path: str = "json_schema") -> None:
    """Check a schema and all that are in it.

    Args:
        schema: Parsed JSON.
        path: Where it stands, for errors.

    Raises:
        ArgumentError: a keyword has a value that no JSON Schema can have; the message has its path.
    """
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise _wrong(path, schema, "a schema: an object, true or false")
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in TYPES:
            raise _wrong(f"{path}.type", kind, "one of " + ", ".join(TYPES))
    if not isinstance(schema.get("enum", [None]), list) or not schema.get("enum", [None]):
        raise _wrong(f"{path}.enum", schema["enum"], "a non-empty list")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise _wrong(f"{path}.required", required, "a list of names")
    for keyword in COUNT_KEYWORDS:
        count = schema.get(keyword, 0)
        if isinstance(count, bool) or not isinstance(count, int | float) or count < 0 or count != int(count):
            raise _wrong(f"{path}.{keyword}", count, "an integer from 0")
    _check_inner(schema, path)


def _check_inner(schema: Mapping[str, Any], path: str) -> None:
    for keyword in SCHEMA_KEYWORDS:
        if keyword in schema and not (keyword == "items" and isinstance(schema[keyword], list)):
            check_schema(schema[keyword], f"{path}.{keyword}")
    for keyword in SCHEMA_LIST_KEYWORDS:
        if keyword in schema:
            if not isinstance(schema[keyword], list) or not schema[keyword]:
                raise _wrong(f"{path}.{keyword}", schema[keyword], "a non-empty list of schemas")
            for index, inner in enumerate(schema[keyword]):
                check_schema(inner, f"{path}.{keyword}[{index}]")
    for keyword in SCHEMA_MAP_KEYWORDS:
        if keyword in schema:
            if not isinstance(schema[keyword], Mapping):
                raise _wrong(f"{path}.{keyword}", schema[keyword], "an object of schemas")
            for name, inner in schema[keyword].items():
                check_schema(inner, f"{path}.{keyword}.{name}")


def _wrong(path: str, value: Any, allowed: str) -> ArgumentError:
    return ArgumentError(f"{path} is {value!r}; it must be {allowed}")
