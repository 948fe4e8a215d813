"""Pieces of JSON Schema, by the words that error messages use."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sgl_runtime.sampling_params import IntegerRange, NumberRange
from sgl_runtime.server.field_checks import MAX_INTEGER

Schema = dict[str, Any]

ANYTHING: Schema = {}
BOOLEAN: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}
TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1}
OBJECT: Schema = {"type": "object"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}


def integer(low: int, high: int = MAX_INTEGER) -> Schema:
    """An integer of a range."""
    return {"type": "integer", "minimum": low, "maximum": high}


def range_schema(check: IntegerRange | NumberRange) -> Schema:
    """What a check of a range allows."""
    if isinstance(check, NumberRange):
        return {
            "type": "number",
            "exclusiveMinimum" if check.is_open else "minimum": check.low,
            "maximum": check.high,
        }
    inside = integer(check.low, check.high)
    return inside if check.also is None else either(inside, {"const": check.also})


def seconds(high: float) -> Schema:
    """A number of seconds above 0."""
    return {"type": "number", "exclusiveMinimum": 0, "maximum": high}


def list_of(items: Schema, *, least: int = 0, most: int | None = None) -> Schema:
    """A list."""
    limit = {} if most is None else {"maxItems": most}
    return {"type": "array", "items": items, **({"minItems": least} if least else {}), **limit}


def either(*options: Schema) -> Schema:
    """A value of any of these shapes."""
    return {"anyOf": list(options)}


def one_of_words(words: Iterable[str]) -> Schema:
    """A string out of a few."""
    return {"type": "string", "enum": list(words)}


def nullable(schema: Schema) -> Schema:
    """The same, or null, which stands for the default."""
    if not schema:
        return schema
    if "anyOf" in schema:
        rest = {name: value for name, value in schema.items() if name != "anyOf"}
        return {"anyOf": [*schema["anyOf"], NULL], **rest}
    return either(schema, NULL)


def ref(name: str) -> Schema:
    """A schema of the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def body(
    fields: Mapping[str, Schema],
    *,
    required: Sequence[str] = (),
    any_of: Sequence[str] = (),
    helps: Mapping[str, str] | None = None,
) -> Schema:
    """The object that a request brings: no other fields; one that is not required may be null.

    Args:
        fields: Each field's schema.
        required: Those that must be given.
        any_of: Of these, at least one must be given.
        helps: What is said of them.
    """
    properties = {name: schema if name in required else nullable(schema) for name, schema in fields.items()}
    for name, text in (helps or {}).items():
        if name in properties:
            properties[name] = {**properties[name], "description": text}
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if any_of:
        found["anyOf"] = [{"required": [name]} for name in any_of]
    return {**found, "required": list(required)} if required else found


def record(fields: Mapping[str, Schema], *, optional: Sequence[str] = ()) -> Schema:
    """An object of a reply: all fields but the optional ones are there, and there may be more."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": dict(fields), **({"required": required} if required else {})}
