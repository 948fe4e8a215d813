"""Constraint: what the output of a gen must match, checked when the expression is built."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from sgl.errors import ArgumentError, reject
from sgl.regex_check import check_regex
from sgl.schema_check import check_schema

ConstraintKind = Literal["regex", "json_schema", "ebnf", "structural_tag"]


@dataclass(frozen=True)
class Constraint:
    """A regex, a JSON Schema as JSON text, a grammar, or a structural tag as JSON text.

    Attributes:
        kind: Name of the request field.
        text: Its value.
        extra_stops: Strings that end the output besides the caller's own (numbers end at white space).
    """

    kind: ConstraintKind
    text: str
    extra_stops: tuple[str, ...] = ()


NUMBER_STOPS = (" ", "\n")

# A number has no end of its own, so white space may follow it and ends it.
REGEX_INT = r"[-+]?[0-9]+[ \n]*"
REGEX_FLOAT = r"[-+]?[0-9]+(\.[0-9]+)?[ \n]*"
REGEX_BOOL = "(True|False)"
REGEX_STR = r'"[^"\\\n]*"'
_DTYPES: dict[str, Constraint] = {
    "int": Constraint("regex", REGEX_INT, NUMBER_STOPS),
    "float": Constraint("regex", REGEX_FLOAT, NUMBER_STOPS),
    "bool": Constraint("regex", REGEX_BOOL),
    "str": Constraint("regex", REGEX_STR),
}


def dtype_constraint(dtype: Any) -> Constraint:
    """The constraint of `gen(dtype=...)`: int, float, bool, str, or one of these names as a string."""
    name = dtype.__name__ if dtype in (int, float, bool, str) else dtype
    if not isinstance(name, str) or name not in _DTYPES:
        raise reject("dtype", dtype, "int, float, bool or str")
    return _DTYPES[name]


def regex_constraint(regex: Any) -> Constraint:
    """The constraint of `gen(regex=...)`.

    Raises:
        ArgumentError: not a string, empty, or malformed; the message says where.
    """
    if not isinstance(regex, str) or not regex:
        raise reject("regex", regex, "a non-empty string")
    check_regex("regex", regex)
    return Constraint("regex", regex)


def schema_constraint(schema: Any) -> Constraint:
    """The constraint of `gen(json_schema=...)`: a dict, JSON text, or a pydantic model class.

    Raises:
        ArgumentError: none of these, or text that is not a JSON object.
    """
    if isinstance(schema, type):
        # Imported here: a program without pydantic models does not pay for loading it.
        from pydantic import BaseModel

        from sgl.output_schema import OutputSchema

        if not issubclass(schema, BaseModel):
            raise reject("json_schema", schema, "a dict, JSON text, or a pydantic model class")
        return Constraint("json_schema", json.dumps(schema.model_json_schema(schema_generator=OutputSchema)))
    if isinstance(schema, dict):
        try:
            text = json.dumps(schema)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"json_schema cannot be written as JSON: {error}") from error
        check_schema(schema)
        return Constraint("json_schema", text)
    if not isinstance(schema, str):
        raise reject("json_schema", schema, "a dict, JSON text, or a pydantic model class")
    try:
        parsed = json.loads(schema)
    except json.JSONDecodeError as error:
        raise ArgumentError(
            f"json_schema is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    if not isinstance(parsed, dict):
        raise reject("json_schema", schema, "a JSON object")
    check_schema(parsed)
    return Constraint("json_schema", schema)


def ebnf_constraint(ebnf: Any) -> Constraint:
    """The constraint of `gen(ebnf=...)`; the server reads the grammar.

    Raises:
        ArgumentError: not a string, or empty.
    """
    if not isinstance(ebnf, str) or not ebnf:
        raise reject("ebnf", ebnf, "a grammar as a non-empty string")
    return Constraint("ebnf", ebnf)


def structural_tag_constraint(tag: Any) -> Constraint:
    """The constraint of `gen(structural_tag=...)`: a dict or JSON text; the server reads it.

    Raises:
        ArgumentError: neither, or no JSON object.
    """
    try:
        text = tag if isinstance(tag, str) else json.dumps(tag)
        parsed = json.loads(text)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"structural_tag is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise reject("structural_tag", tag, "a dict, or a JSON object as text")
    return Constraint("structural_tag", text)
