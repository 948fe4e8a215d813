"""Llama 3: `{"name": ..., "parameters": {...}}`, behind `<|python_tag|>` or where the reply begins; several by `;`."""

from functools import partial

from sgl_runtime.server.tool_parsers.json_calls import json_call
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import Schemas, ToolFormat

_TAG = "<|python_tag|>"


def _read(reader: TextReader, writer: ReplyWriter, schemas: Schemas) -> Steps[None]:
    reader.record()
    yield from reader.space()
    writer.text(reader.recorded())
    if (yield from reader.peek()) == "{":
        yield from _calls(reader, writer, "")
    while (yield from reader.until((_TAG,), writer.text)) is not None:
        yield from _calls(reader, writer, _TAG)


def _calls(reader: TextReader, writer: ReplyWriter, opening: str) -> Steps[None]:
    while True:
        yield from writer.attempt(reader, opening, partial(_call, reader, writer))
        if not writer.is_behind_call:
            return
        reader.record()
        yield from reader.space()
        separator = ";" if (yield from reader.begins(";")) else ""
        if not separator and (yield from reader.peek()) != "{":
            return
        opening = separator


def _call(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
    yield from reader.space()
    yield from json_call(reader, writer)


LLAMA3 = ToolFormat(
    read=_read,
    marks=(_TAG,),
    begin='{"name": {name}, "parameters": ',
    end="}",
    trigger='{"name": ',
    template_signs=(_TAG, '{"name": function name, "parameters":'),
)
