"""Qwen3-Coder: `<tool_call><function=NAME><parameter=KEY>value</parameter>...</function></tool_call>`.

A value is plain text; the schema of the function says what it stands for.
"""

import json
from functools import partial

from sgl_runtime.server.tool_parsers.plain_values import parameters_of, plain_value
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import MalformedError, Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import Schemas, ToolFormat

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"


def _read(reader: TextReader, writer: ReplyWriter, schemas: Schemas) -> Steps[None]:
    while (mark := (yield from reader.until((_OPEN, _FUNCTION), writer.text))) is not None:
        yield from writer.attempt(reader, mark, partial(_call, reader, writer, schemas, mark))


def _call(reader: TextReader, writer: ReplyWriter, schemas: Schemas, mark: str) -> Steps[None]:
    if mark == _OPEN:
        yield from reader.space()
        yield from reader.expect(_FUNCTION)
    name = yield from _name(reader)
    writer.begin(name)
    properties = parameters_of(schemas.get(name))
    separator = "{"
    yield from reader.space()
    while (yield from reader.begins(_PARAMETER)):
        key = yield from _name(reader)
        parts: list[str] = []
        end = yield from reader.until((_PARAMETER_END, _FUNCTION_END), parts.append)
        if end is None:
            raise MalformedError
        text = "".join(parts).removeprefix("\n").removesuffix("\n")
        writer.arguments(f"{separator}{json.dumps(key)}: {plain_value(text, properties.get(key))}")
        separator = ", "
        if end == _FUNCTION_END:
            break
        yield from reader.space()
    else:
        yield from reader.expect(_FUNCTION_END)
    writer.arguments("{}" if separator == "{" else "}")
    writer.end()
    yield from reader.space()
    # A model may end its output in place of the mark.
    if mark == _OPEN and (yield from reader.peek()):
        yield from reader.expect(_CLOSE)


def _name(reader: TextReader) -> Steps[str]:
    """What stands in front of the next `>`, which is read too."""
    name = ""
    while (char := (yield from reader.peek())) != ">":
        if not char or char == "\n":
            raise MalformedError
        name += reader.skip(1)
    reader.skip(1)
    return name.strip()


QWEN3_CODER = ToolFormat(
    read=_read,
    marks=(_OPEN,),
    template_signs=("<tool_call>\\n<function=example_function_name>", "<tool_call>\n<function=example_function_name>"),
)
