"""Pythonic (Llama 4, ToolACE): a reply that begins with a list of Python calls, `[f(a=1), g(b="x")]`."""

import ast
import json
import re
from functools import partial
from typing import Any

from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import MalformedError, Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import Schemas, ToolFormat

_START, _END = "<|python_start|>", "<|python_end|>"
_NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_MAX_DEPTH = 64
_MAX_CHARACTERS = 65_536
_WORDS = {"true": True, "false": False, "null": None}


def _read(reader: TextReader, writer: ReplyWriter, schemas: Schemas) -> Steps[None]:
    reader.record()
    yield from reader.space()
    is_marked = yield from reader.begins(_START)
    yield from reader.space()
    if (yield from reader.peek()) == "[":
        yield from writer.attempt(reader, reader.recorded(), partial(_calls, reader, writer))
    else:
        writer.text(reader.recorded())
    if is_marked and writer.is_behind_call:
        yield from reader.space()
        yield from reader.begins(_END)
    yield from reader.rest(writer.text)


def _calls(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
    yield from reader.expect("[")
    while True:
        yield from reader.space()
        name = yield from _name(reader)
        text = yield from _argument_text(reader)
        writer.begin(name)
        writer.arguments(_arguments(text))
        writer.end()
        yield from reader.space()
        if (yield from reader.begins("]")):
            return
        yield from reader.expect(",")


def _name(reader: TextReader) -> Steps[str]:
    name = ""
    while (char := (yield from reader.peek())) and char not in " (\n":
        name += reader.skip(1)
        if not _NAME.fullmatch(name):
            raise MalformedError
    yield from reader.space()
    yield from reader.expect("(")
    return name


def _argument_text(reader: TextReader) -> Steps[str]:
    """What stands between the bracket that was read and the one that closes it."""
    depth, quote = 1, ""
    parts: list[str] = []
    while True:
        char = yield from reader.peek()
        if not char or len(parts) > _MAX_CHARACTERS:
            raise MalformedError
        reader.skip(1)
        if quote:
            if char == "\\":
                parts.append(char)
                char = yield from reader.peek()
                reader.skip(1)
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        if depth > _MAX_DEPTH:
            raise MalformedError
        if depth == 0:
            return "".join(parts)
        parts.append(char)


def _arguments(text: str) -> str:
    """JSON text of the keyword arguments that Python text holds."""
    try:
        call = ast.parse(f"f({text}\n)", mode="eval").body
    # Text that is no Python makes the parser raise each of these.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise MalformedError from error
    if not isinstance(call, ast.Call) or call.args or not all(keyword.arg for keyword in call.keywords):
        raise MalformedError
    values = {keyword.arg: _value(keyword.value) for keyword in call.keywords}
    try:
        text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise MalformedError from error
    return text if text.isprintable() else json.dumps(values)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.Name(id=word) if word in _WORDS:
            return _WORDS[word]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List() | ast.Tuple():
            return [_value(item) for item in node.elts]
        case ast.Dict(keys=keys, values=values):
            names = [_value(key) if key is not None else None for key in keys]
            if not all(isinstance(name, str) for name in names):
                raise MalformedError
            return dict(zip(names, map(_value, values), strict=True))
    raise MalformedError


PYTHONIC = ToolFormat(
    read=_read,
    marks=(_START, _END),
    template_signs=(_START, "[func_name1("),
)
