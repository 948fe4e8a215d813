"""ReplyWriter: makes events of what a format reads."""

import uuid
from collections.abc import Callable, Collection

from sgl_runtime.server.tool_parsers.events import CallArguments, CallBegin, ContentDelta, ReasoningDelta, ReplyEvent
from sgl_runtime.server.tool_parsers.text_reader import MalformedError, Steps, TextReader

HELD_CHARACTERS = 256
"""So many characters of arguments are held back until a call is whole: what is malformed before stays text."""


def new_call_id() -> str:
    """A fresh id of a tool call."""
    return f"call_{uuid.uuid4().hex[:24]}"


class ReplyWriter:
    """Collects events until they are taken.

    White space around calls and around the thinking is dropped.

    Args:
        functions: Functions that may be called; a call of another one is malformed.
        max_calls: Calls past so many are read and dropped; None for no limit.
        holds: Whether the first characters of a call are held back until it has proved right.

    Attributes:
        is_behind_call: Whether nothing but white space has come since a call, or since the thinking.
        reasoning_spans: Where the thinking stood in the text, its marks included.
    """

    def __init__(self, functions: Collection[str] = (), *, max_calls: int | None = None, holds: bool = True) -> None:
        self._functions = frozenset(functions)
        self._max_calls = max_calls
        self._hold = HELD_CHARACTERS if holds else -1
        self.is_behind_call = False
        self.reasoning_spans: list[tuple[int, int]] = []
        self._events: list[ReplyEvent] = []
        self._held: list[ReplyEvent] = []
        self._num_held = 0
        self._is_released = True
        self._num_calls = 0
        # White space that is shown only when something follows that is no call.
        self._space = ""
        self._reasoning_space = ""
        self._has_reasoning = False
        self._reader: TextReader | None = None

    def take(self) -> list[ReplyEvent]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def text(self, text: str) -> None:
        """A piece of the answer."""
        solid = text.rstrip()
        if self.is_behind_call:
            solid, text = solid.lstrip(), text.lstrip()
        if not solid:
            self._space += text
            return
        self.is_behind_call = False
        self._events.append(ContentDelta(self._space + solid))
        self._space = text[len(solid) :]

    def end_text(self) -> None:
        """The answer is over: white space at its end is a part of it."""
        if self._space:
            self._events.append(ContentDelta(self._space))
            self._space = ""

    def reasoning(self, text: str) -> None:
        """A piece of what the model thinks; white space at both ends of it all is dropped."""
        text = text if self._has_reasoning else text.lstrip()
        solid = text.rstrip()
        if not solid:
            self._reasoning_space += text
            return
        self._has_reasoning = True
        self._events.append(ReasoningDelta(self._reasoning_space + solid))
        self._reasoning_space = text[len(solid) :]

    def end_reasoning(self, begin: int, end: int) -> None:
        """A stretch of thinking, which stood there in the text, is over; another one begins on a line of its own."""
        self.reasoning_spans.append((begin, end))
        self._reasoning_space = "\n" if self._has_reasoning else ""
        self._space, self.is_behind_call = "", True

    def attempt(self, reader: TextReader, opening: str, read: Callable[[], Steps[None]]) -> Steps[None]:
        """Read calls; what turns out to be none becomes text.

        Args:
            reader: The text.
            opening: What was read already and belongs to the calls.
            read: Reads them.
        """
        self._reader = reader
        reader.record(opening)
        try:
            yield from read()
        except MalformedError:
            # What was held back is in the record; what was not cannot be taken back.
            self._held.clear()
            if not self._is_released:
                self._num_calls -= 1
                self._is_released = True
            self.text(reader.recorded())

    def begin(self, name: str) -> None:
        """A call begins.

        Raises:
            MalformedError: there is no such function.
        """
        if name not in self._functions:
            raise MalformedError
        self._is_released, self._num_held = False, 0
        self._held.append(CallBegin(self._num_calls, new_call_id(), name))
        self._num_calls += 1

    def arguments(self, text: str) -> None:
        """A piece of the JSON text of the call's arguments."""
        if not text:
            return
        self._num_held += len(text)
        self._held.append(CallArguments(self._num_calls - 1, text))
        if self._num_held > self._hold:
            self._release()

    def end(self) -> None:
        """The call is whole."""
        self._release()
        self.is_behind_call = True

    def _release(self) -> None:
        if not self._is_released:
            self._space = ""
        self._is_released = True
        if self._max_calls is None or self._num_calls <= self._max_calls:
            self._events.extend(self._held)
        self._held.clear()
        if self._reader is not None:
            self._reader.record()
