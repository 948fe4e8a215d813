"""Checks of single fields that the bodies of several paths share."""

from collections.abc import Sequence
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import MAX_SHOWN, reject

MAX_INTEGER = 2**31 - 1
"""Largest number that a field holds where nothing else limits it."""

MAX_ID = 1000
"""Characters of an id that a client chooses: it travels with every token."""


def checked_fields(payload: Any, known: Sequence[str], *, path: str = "") -> dict[str, Any]:
    """The fields of a JSON object that are not null.

    Args:
        payload: The object.
        known: Names that it may have.
        path: Its place in the body, for errors; empty for the body itself.

    Raises:
        InvalidRequestError: it is no object, or has a field that is not in `known`.
    """
    if not isinstance(payload, dict):
        raise InvalidRequestError(
            f"{path or 'the body'} is {kind_of(payload)}; it must be an object", param=path or None
        )
    prefix = f"{path}." if path else ""
    for name in payload:
        if name not in known:
            shown = f"{prefix}{name[:MAX_SHOWN]}"
            raise InvalidRequestError(f"{shown} is not a known field; known: {', '.join(known)}", param=shown)
    return {name: value for name, value in payload.items() if value is not None}


def is_int(value: Any) -> bool:
    """Whether this is a JSON integer (a boolean is none)."""
    return isinstance(value, int) and not isinstance(value, bool)


def checked_boolean(path: str, value: Any) -> bool:
    """True or false.

    Raises:
        InvalidRequestError: it is something else.
    """
    if not isinstance(value, bool):
        raise reject(path, value, "true or false")
    return value


def checked_integer(path: str, value: Any, *, low: int, high: int = MAX_INTEGER) -> int:
    """An integer of a range.

    Raises:
        InvalidRequestError: it is something else, or outside.
    """
    if not is_int(value) or not low <= value <= high:
        raise reject(path, value, f"an integer from {low} to {high}")
    return int(value)


def checked_seconds(path: str, value: Any, *, high: float) -> float:
    """A number of seconds above 0.

    Raises:
        InvalidRequestError: it is something else, or more than `high`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= high:
        raise reject(path, value, f"a number of seconds above 0, at most {high:.0f}")
    return float(value)


def checked_text(path: str, value: Any) -> str:
    """A string that can be written as UTF-8.

    Raises:
        InvalidRequestError: it is no string, or holds half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise reject(path, value, "a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{path} holds half of a surrogate pair at character {error.start}; it must be valid Unicode", param=path
        ) from error
    return value


def checked_name(path: str, value: Any) -> str:
    """A string with something in it.

    Raises:
        InvalidRequestError: it is something else.
    """
    if not isinstance(value, str) or not value:
        raise reject(path, value, "a non-empty string")
    return checked_text(path, value)


def checked_id(path: str, value: Any) -> str:
    """A name of a request or session.

    Raises:
        InvalidRequestError: it is something else, or too long.
    """
    text = checked_name(path, value)
    if len(text) > MAX_ID:
        raise InvalidRequestError(f"{path} has {len(text)} characters; at most {MAX_ID} are taken", param=path)
    return text


def token_ids(path: str, value: Any) -> list[int]:
    """A list of integers; whether the vocabulary has them is checked later.

    Raises:
        InvalidRequestError: it is something else.
    """
    if not isinstance(value, list):
        raise reject(path, value, "a list of token ids")
    # Most lists hold nothing else, which this says soonest; there may be millions.
    if set(map(type, value)) - {int}:
        for position, token_id in enumerate(value):
            if not is_int(token_id):
                raise reject(f"{path}[{position}]", token_id, "a token id")
    return value


_KINDS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
}


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    return _KINDS.get(type(value), "an object")
