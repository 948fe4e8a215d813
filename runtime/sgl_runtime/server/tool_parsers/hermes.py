"""Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, in any place and number."""

from functools import partial

from sgl_runtime.server.tool_parsers.json_calls import json_call
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import Schemas, ToolFormat

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


def _read(reader: TextReader, writer: ReplyWriter, schemas: Schemas) -> Steps[None]:
    while (yield from reader.until((_OPEN,), writer.text)) is not None:
        yield from writer.attempt(reader, _OPEN, partial(_call, reader, writer))


def _call(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
    yield from reader.space()
    yield from json_call(reader, writer)
    yield from reader.space()
    # A model may end its output in place of the mark.
    if (yield from reader.peek()):
        yield from reader.expect(_CLOSE)


HERMES = ToolFormat(
    read=_read,
    marks=(_OPEN,),
    begin='<tool_call>\n{"name": {name}, "arguments": ',
    end="}\n</tool_call>",
    trigger=_OPEN,
    template_signs=(_OPEN,),
)
