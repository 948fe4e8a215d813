"""TextParser: runs a format over the text of one reply."""

from collections.abc import Callable

from sgl_runtime.server.tool_parsers.events import ReplyEvent
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import Steps, TextReader


class TextParser:
    """Gives events as text arrives; put together they are the same however the text was cut.

    Args:
        read: Reads the whole text.
        writer: Collects the events.
    """

    def __init__(self, read: Callable[[TextReader, ReplyWriter], Steps[None]], writer: ReplyWriter) -> None:
        self._reader = TextReader()
        self._writer = writer
        self._steps = read(self._reader, writer)

    @property
    def reasoning_spans(self) -> list[tuple[int, int]]:
        """Where the thinking stood in the text so far."""
        return self._writer.reasoning_spans

    def feed(self, text: str) -> list[ReplyEvent]:
        """The events that more text makes certain."""
        self._reader.feed(text)
        next(self._steps)
        return self._writer.take()

    def finish(self) -> list[ReplyEvent]:
        """The events that the end of the text makes certain."""
        self._reader.close()
        for _ in self._steps:
            raise AssertionError("a format waits for text behind the end")
        self._writer.end_text()
        return self._writer.take()
