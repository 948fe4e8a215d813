"""Mistral: `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`, or `[TOOL_CALLS]name[ARGS]{...}` for each call."""

from functools import partial

from sgl_runtime.server.tool_parsers.json_calls import json_arguments, json_call
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import MalformedError, Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import Schemas, ToolFormat

_MARK, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"


def _read(reader: TextReader, writer: ReplyWriter, schemas: Schemas) -> Steps[None]:
    while (yield from reader.until((_MARK,), writer.text)) is not None:
        yield from writer.attempt(reader, _MARK, partial(_calls, reader, writer))


def _calls(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
    yield from reader.space()
    if (yield from reader.begins("[")):
        yield from json_call_list(reader, writer)
        return
    name = yield from _name(reader)
    if (yield from reader.begins(_ID)):
        yield from _name(reader)
    yield from reader.begins(_ARGUMENTS)
    yield from reader.space()
    writer.begin(name)
    yield from json_arguments(reader, writer)
    writer.end()


def json_call_list(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
    """Read a list of calls whose bracket was read.

    Raises:
        MalformedError: something else comes.
    """
    while True:
        yield from reader.space()
        yield from json_call(reader, writer)
        yield from reader.space()
        if (yield from reader.begins("]")):
            return
        yield from reader.expect(",")


def _name(reader: TextReader) -> Steps[str]:
    """What stands in front of the next bracket."""
    while (char := (yield from reader.peek())) not in ("[", "{"):
        if not char or char == "\n":
            raise MalformedError
        reader.skip(1)
    return reader.recorded().rpartition("]")[2].strip()


MISTRAL = ToolFormat(
    read=_read,
    marks=(_MARK, _ARGUMENTS, _ID),
    begin='[TOOL_CALLS][{"name": {name}, "arguments": ',
    end="}]",
    trigger=_MARK,
    template_signs=(_MARK,),
)
