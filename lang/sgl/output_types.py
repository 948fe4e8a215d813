"""OutputType: from a Python type to the constraint of a gen, and from the text to a value of the type.

int, float, bool, None, date, time, datetime, Decimal, UUID, a Literal, an Enum, and unions of these are scalars; list,
dict, tuple, dataclass, TypedDict, pydantic model and anything else that pydantic has a schema for is structured, also
where it refers to itself; str is any text.  A regex term or schema of package `outlines` is text of its form.
An output that was cut raises `TruncatedError` where it is read; `s.get(name, str)` is its text.

Scalars are written the way Python shows them and constrained by a regex; everything else is JSON, with the schema and
the validation of pydantic.
"""

import datetime
import enum
import inspect
import json
import re
import sys
import types
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin

from sgl.constraints import NUMBER_STOPS, Constraint, regex_constraint
from sgl.errors import ArgumentError, reject

INT = "-?[0-9]+"
FLOAT = r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"
DATE = "[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
DECIMAL = r"-?[0-9]+(\.[0-9]+)?"
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@dataclass(frozen=True)
class OutputType:
    """A type that an output is read as.

    Attributes:
        name: How errors call it.
        constraint: What the output must match; None for any text.
        read: From the text to the value; raises ValueError.
        is_json: Whether the text is JSON, so that a beginning of it can be read too.
    """

    name: str
    constraint: Constraint | None
    read: Callable[[str], Any]
    is_json: bool = False


@dataclass(frozen=True)
class _Scalar:
    """One way to write a scalar.

    Attributes:
        rank: Of several readings of one text the lowest counts.
        pattern: Regex of its text.
        read: From such a text to the value.
    """

    rank: int
    pattern: str
    read: Callable[[str], Any]


_SCALARS: dict[Any, _Scalar] = {
    type(None): _Scalar(0, "None", lambda text: None),
    None: _Scalar(0, "None", lambda text: None),
    bool: _Scalar(1, "True|False", lambda text: text == "True"),
    int: _Scalar(3, INT, int),
    float: _Scalar(4, FLOAT, float),
    uuid.UUID: _Scalar(2, UUID, uuid.UUID),
    Decimal: _Scalar(5, DECIMAL, Decimal),
    datetime.date: _Scalar(2, DATE, datetime.date.fromisoformat),
    datetime.time: _Scalar(2, TIME, datetime.time.fromisoformat),
    datetime.datetime: _Scalar(2, f"{DATE}T{TIME}", datetime.datetime.fromisoformat),
}


def output_type(wanted: Any) -> OutputType:
    """The output type of `gen(type=wanted)`.

    Args:
        wanted: int, float, bool, str, None, date, time, datetime, Decimal, UUID, a Literal, an Enum class, a union of
            these; anything that pydantic has a JSON Schema for (list, dict, tuple, dataclass, TypedDict, model,
            Annotated); or a term of `outlines.types`.

    Raises:
        ArgumentError: no schema can be made of it.
    """
    try:
        return _remembered_output_type(wanted)
    except TypeError:
        # Annotated types with metadata that has no hash.
        return _new_output_type(wanted)


def _new_output_type(wanted: Any) -> OutputType:
    name = wanted.__name__ if isinstance(wanted, type) and not get_args(wanted) else str(wanted)
    if inspect.isroutine(wanted):
        # pydantic reads a function as its call.
        raise reject("type", wanted, "a type")
    if wanted is str:
        return OutputType(name, None, str)
    outlines_type = _outlines_type(wanted)
    if outlines_type is not None:
        return outlines_type
    scalars = _scalars(wanted)
    if scalars is None:
        return _json_type(name, wanted)
    ordered = sorted(scalars, key=lambda scalar: scalar.rank)
    pattern = "|".join(f"({scalar.pattern})" for scalar in ordered)
    stops: tuple[str, ...] = ()
    if wanted in (int, float, Decimal):
        # Numbers have no end of their own: white space lets the model end them.
        pattern, stops = f"{ordered[0].pattern}[ \n]*", NUMBER_STOPS

    def read(text: str) -> Any:
        for scalar in ordered:
            if re.fullmatch(scalar.pattern, text.strip()):
                return scalar.read(text.strip())
        raise ValueError(f"{text!r} is no {name}")

    return OutputType(name, Constraint("regex", pattern, stops), read)


# Building validators takes milliseconds, and programs build the same gen in every run.
_remembered_output_type = lru_cache(maxsize=256)(_new_output_type)


def _scalars(wanted: Any) -> list[_Scalar] | None:
    """The ways to write a type that needs no JSON; None where it needs it."""
    if get_origin(wanted) in (Union, types.UnionType):
        members = [_scalars(member) for member in get_args(wanted)]
        return None if None in members else [scalar for member in members for scalar in member or []]
    if get_origin(wanted) is Literal:
        return [_constant(value) for value in get_args(wanted)]
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        if not len(wanted):
            raise reject("type", wanted, "an Enum with members")
        return [_constant(member) for member in wanted]
    if wanted is None or (isinstance(wanted, type) and wanted in _SCALARS):
        return [_SCALARS[wanted]]
    return None


def _constant(value: Any) -> _Scalar:
    text = str(value.value if isinstance(value, enum.Enum) else value)
    return _Scalar(0, re.escape(text), lambda _: value)


def _outlines_type(wanted: Any) -> OutputType | None:
    """The type of a term of package outlines, which is there where its terms are; None for anything else."""
    module = type(wanted).__module__
    if module != "outlines.types.dsl":
        return None
    kind = type(wanted).__name__
    if kind == "JsonSchema":
        return OutputType("outlines JsonSchema", Constraint("json_schema", wanted.schema), json.loads, is_json=True)
    try:
        pattern: str = sys.modules[module].to_regex(wanted)
    except (TypeError, NotImplementedError) as error:
        raise ArgumentError(f"type is an outlines {kind}, which is no regex: {error}") from error
    return OutputType(f"outlines {kind}", regex_constraint(pattern), str)


def _json_type(name: str, wanted: Any) -> OutputType:
    # Imported here: a program without such types does not pay for loading it.
    from pydantic import PydanticUserError, TypeAdapter
    from pydantic_core import SchemaError

    from sgl.output_schema import OutputSchema

    try:
        adapter = TypeAdapter(wanted)
        schema = adapter.json_schema(schema_generator=OutputSchema)
    except (PydanticUserError, SchemaError, NameError) as error:
        raise ArgumentError(f"type {name} has no JSON Schema: {error}") from error
    return OutputType(name, Constraint("json_schema", json.dumps(schema)), adapter.validate_json, is_json=True)


def validate(wanted: Any, value: Any) -> Any:
    """A value of the wanted type, of one that is not text (what a program set or a join gathered).

    Raises:
        ValueError: it cannot be one.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(wanted).validate_python(value)
