"""Stop strings: where they cut a text, and which end of a text may still become one."""

from collections.abc import Sequence


def cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The text before the earliest stop string, and which one it is: the longest of those that begin there."""
    found = [(text.index(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    start, _, stop = min(found)
    return text[:start], stop


def without_stop_beginning(text: str, stops: Sequence[str]) -> str:
    """The text without an end that could still become a stop string."""
    for start in range(len(text)):
        if any(stop.startswith(text[start:]) for stop in stops):
            return text[:start]
    return text
