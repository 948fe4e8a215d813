"""What a JSON object holds that was cut off in the middle."""

import json
from collections import deque
from dataclasses import dataclass
from typing import Any

_CLOSERS = {"{": "}", "[": "]"}


def read_cut_object(text: str) -> dict[str, Any]:
    """The members of an object that are whole, in the text of one that may have no end.

    Args:
        text: JSON as far as it came.

    Returns:
        The object; a string, number or word that was cut is left out, and so is what has no value yet.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = _read(text)
    return found if isinstance(found, dict) else {}


def _read(text: str) -> Any:
    # Up to each of these places the text makes sense, once what is open there is closed.
    for place in reversed(_sound_places(text)):
        try:
            return json.loads(text[: place.end] + place.closing())
        except (ValueError, RecursionError):
            continue
    return {}


@dataclass(frozen=True)
class _Open:
    """A list or an object that is open, and the one around it."""

    closer: str
    outer: "_Open | None"


@dataclass(frozen=True)
class _Place:
    """A place in the text, and what is open there."""

    end: int
    innermost: _Open | None

    def closing(self) -> str:
        closers: list[str] = []
        each = self.innermost
        while each is not None:
            closers.append(each.closer)
            each = each.outer
        return "".join(closers)


def _sound_places(text: str) -> list[_Place]:
    """The last ends of values and beginnings of lists and objects: behind at most two of them stands what was cut."""
    places: deque[_Place] = deque(maxlen=4)
    innermost: _Open | None = None
    in_string = is_escaped = False
    for index, char in enumerate(text):
        if in_string:
            in_string = is_escaped or char != '"'
            is_escaped = char == "\\" and not is_escaped
        elif char == '"':
            in_string = True
        elif char in _CLOSERS:
            innermost = _Open(_CLOSERS[char], innermost)
            places.append(_Place(index + 1, innermost))
        elif char in "]}" and innermost is not None:
            innermost = innermost.outer
            places.append(_Place(index + 1, innermost))
        elif char == ",":
            places.append(_Place(index, innermost))
    if not in_string:
        places.append(_Place(len(text), innermost))
    return list(places)
