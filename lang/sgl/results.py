"""Reading results: from the text of a variable to typed values, whole ones and those that still grow."""

import re
from dataclasses import dataclass
from typing import Any

from sgl.errors import ResultError, TruncatedError
from sgl.output_types import OutputType, output_type, validate
from sgl.variable import Variable

WHOLE_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
OPEN_NUMBER = re.compile(r"[-+0-9.eE]+\Z")


@dataclass(frozen=True)
class Partial:
    """What there is of a structured output that is still being generated: plain JSON data, not validated.

    Attributes:
        data: Dicts, lists, strings, numbers; a number or word at the end is left out until it is whole.
    """

    data: Any


@dataclass(frozen=True)
class Place:
    """Where a value comes from, for errors.

    Attributes:
        program: The program.
        variable: The variable.
        source: `file:line` of its gen, where it is known.
    """

    program: str
    variable: str | None
    source: str | None = None

    def __str__(self) -> str:
        where = "" if self.source is None else f" at {self.source}"
        return f"program {self.program!r}: variable {self.variable!r}{where}"


def read_text(kind: OutputType, text: str, meta: dict[str, Any], place: Place, *, is_generated_as: bool) -> Any:
    """The value of a text.

    Args:
        kind: What it is to be.
        text: The text.
        meta: Meta info of its gen.
        place: For errors.
        is_generated_as: Whether it was generated as this type.

    Raises:
        TruncatedError: the output was cut at its limit of tokens.
        ResultError: the text is no value of the type.
    """
    is_cut = (meta.get("finish_reason") or {}).get("type") == "length"
    if is_cut and is_generated_as and kind.constraint is not None:
        # The beginning of a number or of a word may well be readable, and is wrong.
        raise _truncated(kind, text, meta, place)
    try:
        return kind.read(text)
    except ValueError as error:
        if is_cut:
            raise _truncated(kind, text, meta, place) from error
        raise unreadable(f"{_shown(text)}, which is no {kind.name}: {error}", text, place) from error


def unreadable(what: str, text: str, place: Place) -> ResultError:
    """The error of a variable of whose text no value could be made."""
    return ResultError(
        f"{place} is {what}", program=place.program, variable=place.variable, source=place.source, text=text
    )


def read_variable(variable: Variable, wanted: Any, program: str) -> Any:
    """The value of a settled variable as another type.

    Raises:
        SglError: the variable failed, or is no such value.
    """
    if variable.error is not None and not variable.has_whole_text:
        raise variable.error.with_traceback(None)
    place = Place(program, variable.name)
    if variable.is_text:
        return read_text(output_type(wanted), variable.text, variable.meta, place, is_generated_as=False)
    try:
        return validate(wanted, variable.value)
    except ValueError as error:
        raise unreadable(f"{_shown(variable.value)}, which is no {wanted}: {error}", "", place) from error


def read_beginning(text: str) -> Partial | None:
    """What a beginning of JSON says so far; None where that is nothing yet."""
    from pydantic_core import from_json

    is_in_string = '"' in WHOLE_STRING.sub("", text)
    whole = text if is_in_string else OPEN_NUMBER.sub("", text)
    try:
        data = from_json(whole, allow_partial="trailing-strings")
    except ValueError:
        return None
    return Partial(data)


def _truncated(kind: OutputType, text: str, meta: dict[str, Any], place: Place) -> TruncatedError:
    return TruncatedError(
        f"{place} was cut after {meta.get('completion_tokens')} tokens, so it is no whole {kind.name}: "
        f"{_shown(text)}; raise max_tokens, or read the text with s.get({place.variable!r}, str)",
        program=place.program,
        variable=place.variable,
        source=place.source,
        text=text,
    )


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 200 else shown[:197] + "..."
