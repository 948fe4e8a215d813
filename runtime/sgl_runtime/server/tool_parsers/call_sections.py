"""Reading calls in sections: a mark opens one, calls begin with a mark each, and a mark closes it."""

from collections.abc import Callable
from dataclasses import dataclass

from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import Steps, TextReader


@dataclass(frozen=True)
class SectionMarks:
    """The marks of a section, and what begins and ends a call in it."""

    opening: str
    closing: str
    call: str
    call_end: str


def read_sections(
    reader: TextReader,
    writer: ReplyWriter,
    marks: SectionMarks,
    read_call: Callable[[TextReader, ReplyWriter], Steps[None]],
) -> Steps[None]:
    """Read a whole reply.

    Args:
        reader: Its text.
        writer: Gets text and calls.
        marks: The marks.
        read_call: Reads a call behind its mark, up to its end, which is not read.
    """

    def call() -> Steps[None]:
        yield from read_call(reader, writer)
        yield from reader.space()
        # A model may end its output in place of the mark.
        if (yield from reader.peek()):
            yield from reader.expect(marks.call_end)

    while (yield from reader.until((marks.opening,), writer.text)) is not None:
        reader.record(marks.opening)
        yield from reader.space()
        while (yield from reader.begins(marks.call)):
            yield from writer.attempt(reader, reader.recorded(), call)
            reader.record()
            yield from reader.space()
        if not (yield from reader.begins(marks.closing)) or not writer.is_behind_call:
            writer.text(reader.recorded())
