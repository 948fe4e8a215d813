"""Constraint: what the output of a gen must match, checked when the expression is built."""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from sgl.errors import ArgumentError, reject
from sgl.schema_check import check_schema

# The pieces of a regex: an escape, a class, what refers back, any other character.
PIECE = re.compile(r"\\.|\[\^?+\]?+(?:\\.|[^\]\\])*+\]|\(\?P=|\(\?\(|.", re.DOTALL)
BACK_REFERENCE = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")

ConstraintKind = Literal["regex", "json_schema"]


@dataclass(frozen=True)
class Constraint:
    """A regex, or a JSON Schema as JSON text.

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
_DTYPES: dict[str, Constraint] = {
    "int": Constraint("regex", r"[-+]?[0-9]+[ \n]*", NUMBER_STOPS),
    "float": Constraint("regex", r"[-+]?[0-9]+(\.[0-9]+)?[ \n]*", NUMBER_STOPS),
    "bool": Constraint("regex", "(True|False)"),
    "str": Constraint("regex", r'"[^"\\\n]*"'),
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
    try:
        re.compile(regex)
    except re.error as error:
        raise ArgumentError(f"regex {regex!r} is malformed at position {error.pos}: {error.msg}") from error
    for piece in PIECE.finditer(regex):
        if BACK_REFERENCE.fullmatch(piece[0]):
            raise ArgumentError(
                f"regex {regex!r} refers back to a group at position {piece.start()}, which no automaton can follow"
            )
    return Constraint("regex", regex)


def schema_constraint(schema: Any) -> Constraint:
    """The constraint of `gen(json_schema=...)`: a dict, JSON text, or a pydantic model class.

    Raises:
        ArgumentError: none of these, or text that is not a JSON object.
    """
    if isinstance(schema, type):
        # Imported here: a program without pydantic models does not pay for loading it.
        from pydantic import BaseModel

        if not issubclass(schema, BaseModel):
            raise reject("json_schema", schema, "a dict, JSON text, or a pydantic model class")
        return Constraint("json_schema", json.dumps(schema.model_json_schema()))
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
