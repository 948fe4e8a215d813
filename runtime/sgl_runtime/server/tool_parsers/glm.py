"""GLM 4.5 and later: `<tool_call>NAME` and `<arg_key>KEY</arg_key><arg_value>value</arg_value>` for each argument.

A value is plain text; the schema of the function says what it stands for.
"""

import json
from functools import partial

from sgl_runtime.server.tool_parsers.plain_values import parameters_of, plain_value
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import MalformedError, Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import Schemas, ToolFormat

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_KEY, _KEY_END = "<arg_key>", "</arg_key>"
_VALUE, _VALUE_END = "<arg_value>", "</arg_value>"


def _read(reader: TextReader, writer: ReplyWriter, schemas: Schemas) -> Steps[None]:
    while (yield from reader.until((_OPEN,), writer.text)) is not None:
        yield from writer.attempt(reader, _OPEN, partial(_call, reader, writer, schemas))


def _call(reader: TextReader, writer: ReplyWriter, schemas: Schemas) -> Steps[None]:
    head: list[str] = []
    mark = yield from reader.until((_KEY, _CLOSE), head.append)
    name = "".join(head).strip()
    writer.begin(name)
    properties = parameters_of(schemas.get(name))
    separator = "{"
    while mark == _KEY:
        key = yield from _up_to(reader, _KEY_END)
        yield from reader.space()
        yield from reader.expect(_VALUE)
        value = yield from _up_to(reader, _VALUE_END)
        writer.arguments(f"{separator}{json.dumps(key)}: {plain_value(value, properties.get(key))}")
        separator = ", "
        yield from reader.space()
        mark = _KEY if (yield from reader.begins(_KEY)) else None
    # A model may end its output in place of the mark.
    if mark is None and (yield from reader.peek()):
        yield from reader.expect(_CLOSE)
    writer.arguments("{}" if separator == "{" else "}")
    writer.end()


def _up_to(reader: TextReader, mark: str) -> Steps[str]:
    parts: list[str] = []
    if (yield from reader.until((mark,), parts.append)) is None:
        raise MalformedError
    return "".join(parts)


GLM = ToolFormat(read=_read, marks=(_OPEN, _KEY, _VALUE), template_signs=(_KEY,))
