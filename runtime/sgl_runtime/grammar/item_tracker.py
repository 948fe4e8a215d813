"""ItemTracker: the items of arrays whose items must differ, compared while an output is written.

An automaton cannot remember items without end.  So it only says where such arrays begin; what stands in them is read
along here, byte by byte, and whatever byte would complete an item that came before is told of.

Items are equal as JSON values: `1` and `1.0`, escapes and characters, objects whose properties are in another order.
Numbers are compared as floats, so that some that differ past the sixteenth digit count as equal, as in other readers.
"""

import json
from collections.abc import Hashable, Iterator
from typing import Any

_QUOTE, _BACKSLASH, _COMMA = b'"\\,'
_OPENING, _CLOSING, _SPACE = b"[{", b"]}", b" \t\n\r"
ENDING = b",] \t\n\r"
"""Bytes behind which a number or a word cannot go on."""


class OpenArray:
    """An array that has begun and not ended.

    Attributes:
        keys: What its items are equal by.
        literals: All strings in these items, keys of objects included, in UTF-8.
        item: The bytes of the item that is being written.
        string_begin: Where in it the contents of the string begin that is being written.
        in_string: Whether one is.
    """

    __slots__ = (
        "_depth", "_fresh", "_is_escaped", "in_string", "is_closed", "item", "keys", "literals", "string_begin",
    )  # fmt: skip

    def __init__(self) -> None:
        self.keys: set[Hashable] = set()
        self.literals: set[bytes] = set()
        self.item = bytearray()
        self.string_begin = 0
        self.in_string = False
        self.is_closed = False
        self._is_escaped = False
        self._depth = 0
        # Keys that a copy found, which are not those of the array that it is a copy of.
        self._fresh: list[Hashable] | None = None

    def trial(self) -> "OpenArray":
        """A copy to try bytes on."""
        copy = OpenArray()
        copy.keys, copy.literals, copy.item = self.keys, self.literals, self.item[:]
        copy.string_begin, copy.in_string, copy.is_closed = self.string_begin, self.in_string, self.is_closed
        copy._is_escaped, copy._depth, copy._fresh = self._is_escaped, self._depth, []
        return copy

    @property
    def writes_bare(self) -> bool:
        """Whether a number or a word is being written as an item."""
        return bool(self.item) and not self.in_string and self._depth == 0

    def repeats_bare(self) -> bool:
        """Whether the number or word that is being written would be one that came before if it ended here."""
        return self._is_known(_key(_read(self.item)))

    def feed(self, byte: int) -> bool:
        """Take a byte; False where it completes an item that came before."""
        if self.in_string:
            self.item.append(byte)
            if self._is_escaped:
                self._is_escaped = False
            elif byte == _BACKSLASH:
                self._is_escaped = True
            elif byte == _QUOTE:
                self.in_string = False
                return self._depth > 0 or self._complete()
            return True
        if byte in _CLOSING:
            if self._depth == 0:
                self.is_closed = True
                return self._complete()
            self.item.append(byte)
            self._depth -= 1
            return self._depth > 0 or self._complete()
        if self._depth == 0 and (byte == _COMMA or byte in _SPACE):
            return self._complete()
        self.item.append(byte)
        if byte == _QUOTE:
            self.in_string = True
            self.string_begin = len(self.item)
        elif byte in _OPENING:
            self._depth += 1
        return True

    def _complete(self) -> bool:
        """The item has ended, if there is one."""
        if not self.item:
            return True
        value = _read(self.item)
        self.item.clear()
        key = _key(value)
        if self._is_known(key):
            return False
        if self._fresh is None:
            self.keys.add(key)
            self.literals.update(_literals(value))
        else:
            self._fresh.append(key)
        return True

    def _is_known(self, key: Hashable) -> bool:
        return key in self.keys or (self._fresh is not None and key in self._fresh)


class ItemTracker:
    """The arrays that are open, one in another.

    Attributes:
        arrays: The innermost last.
    """

    __slots__ = ("arrays",)

    def __init__(self, arrays: list[OpenArray] | None = None) -> None:
        self.arrays: list[OpenArray] = [] if arrays is None else arrays

    def trial(self) -> "ItemTracker":
        """A copy to try bytes on."""
        return ItemTracker([each.trial() for each in self.arrays])

    def feed(self, byte: int, *, opens: bool) -> bool:
        """Take a byte; False where it completes an item that came before.

        Args:
            byte: The byte.
            opens: Whether it opens an array whose items must differ.
        """
        arrays = self.arrays
        if not arrays and not opens:
            return True
        is_new = True
        for each in arrays:
            is_new &= each.feed(byte)
        if arrays and arrays[-1].is_closed:
            arrays.pop()
        if opens:
            arrays.append(OpenArray())
        return is_new


def _read(text: bytearray) -> Any:
    # Python limits the digits of an int.
    return json.loads(text, parse_int=float)


def _key(value: Any) -> Hashable:
    """What values are equal by; true is not 1."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, list):
        return ("array", *map(_key, value))
    if isinstance(value, dict):
        return frozenset((name, _key(each)) for name, each in value.items())
    return ("string", value) if isinstance(value, str) else value


def _literals(value: Any) -> Iterator[bytes]:
    if isinstance(value, str):
        yield value.encode("utf-8", "surrogatepass")
    elif isinstance(value, list):
        for each in value:
            yield from _literals(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name.encode("utf-8", "surrogatepass")
            yield from _literals(each)
