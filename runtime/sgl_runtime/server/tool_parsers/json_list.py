"""A forced choice of tools: `[{"name": ..., "parameters": {...}}, ...]`, which a grammar enforces."""

from sgl_runtime.server.tool_parsers.mistral import json_call_list
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import Schemas, ToolFormat


def _read(reader: TextReader, writer: ReplyWriter, schemas: Schemas) -> Steps[None]:
    def calls() -> Steps[None]:
        yield from reader.space()
        yield from reader.expect("[")
        yield from json_call_list(reader, writer)

    yield from writer.attempt(reader, "", calls)
    yield from reader.rest(writer.text)


JSON_LIST = ToolFormat(read=_read, begin='[{"name": {name}, "parameters": ', end="}]")
