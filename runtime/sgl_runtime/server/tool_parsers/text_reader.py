"""TextReader: text that arrives in pieces, read by a format as if it were all there.

A format is a generator: where it needs text that has not arrived it yields, and goes on when there is more.  What it
does depends on the characters alone and never on how they were cut, so whole and streamed replies cannot differ.
"""

import re
from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import TypeVar

from sgl_runtime.server.tool_parsers.json_scanner import JsonScanner

T = TypeVar("T")
Steps = Generator[None, None, T]

_SPACE = " \t\r\n"


class MalformedError(Exception):
    """What was read is not what the format has here; it stays text."""


class TextReader:
    """Reads forward only; what was read since the last `record` can be had back as text.

    Attributes:
        position: How many characters were read in all.
        is_closed: Whether all text has arrived.
    """

    def __init__(self) -> None:
        self.position = 0
        self.is_closed = False
        self._text = ""
        self._at = 0
        self._record: list[str] = []

    def feed(self, text: str) -> None:
        """More text has arrived."""
        self._text = self._text[self._at :] + text
        self._at = 0

    def close(self) -> None:
        """All text has arrived."""
        self.is_closed = True

    def record(self, opening: str = "") -> None:
        """Forget what was read; begin a new record with this text."""
        self._record = [opening]

    def recorded(self) -> str:
        """What was read since the last `record`, behind its opening."""
        return "".join(self._record)

    def skip(self, count: int) -> str:
        """Read so many characters that have arrived."""
        taken = self._text[self._at : self._at + count]
        self._at += count
        self.position += count
        self._record.append(taken)
        return taken

    def peek(self) -> Steps[str]:
        """The next character, which is not read; "" at the end."""
        while self._at == len(self._text):
            if self.is_closed:
                return ""
            yield
        return self._text[self._at]

    def space(self) -> Steps[None]:
        """Read over white space."""
        while True:
            char = yield from self.peek()
            if not char or char not in _SPACE:
                return
            self.skip(1)

    def begins(self, text: str) -> Steps[bool]:
        """Whether this comes next; it is read then."""
        while True:
            if self._text.startswith(text, self._at):
                self.skip(len(text))
                return True
            if self.is_closed or not text.startswith(self._text[self._at : self._at + len(text)]):
                return False
            yield

    def expect(self, text: str) -> Steps[None]:
        """Read over this text.

        Raises:
            MalformedError: something else comes.
        """
        if not (yield from self.begins(text)):
            raise MalformedError

    def until(self, marks: Sequence[str], sink: Callable[[str], None]) -> Steps[str | None]:
        """Hand on text up to the first of some marks, and read over that; None: the text ended without one.

        Args:
            marks: Of several that begin in one place the longest counts.
            sink: Takes the text, piece by piece.
        """
        pattern = _any_of(tuple(marks))
        while True:
            found = pattern.search(self._text, self._at)
            begun = len(self._text) if self.is_closed else self._begun_at(marks)
            if found is not None and found.start() < begun:
                sink(self.skip(found.start() - self._at))
                return self.skip(len(found.group()))
            sink(self.skip(begun - self._at))
            if self.is_closed:
                return None
            yield

    def rest(self, sink: Callable[[str], None]) -> Steps[None]:
        """Hand on all text to the end."""
        while True:
            sink(self.skip(len(self._text) - self._at))
            if self.is_closed:
                return
            yield

    def json_value(self, sink: Callable[[str], None]) -> Steps[None]:
        """Hand on the text of one JSON value, as JSON has it.

        Raises:
            MalformedError: something else comes; what was handed on is the beginning of a value.
        """
        scanner = JsonScanner()
        while True:
            count, shown = scanner.feed(self._text, self._at)
            self.skip(count)
            sink(shown)
            if self.is_closed:
                scanner.finish()
            if scanner.is_done:
                return
            if scanner.is_wrong or self.is_closed:
                raise MalformedError
            yield

    def _begun_at(self, marks: Sequence[str]) -> int:
        """Where the longest end of the text begins that may become a mark with more text."""
        text = self._text
        for size in range(min(len(text) - self._at, max(map(len, marks)) - 1), 0, -1):
            tail = text[-size:]
            if any(len(mark) > size and mark.startswith(tail) for mark in marks):
                return len(text) - size
        return len(text)


@cache
def _any_of(marks: tuple[str, ...]) -> "re.Pattern[str]":
    """One pass over the text for all marks; of those in one place the longest."""
    return re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True))))
