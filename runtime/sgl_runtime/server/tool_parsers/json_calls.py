"""Reading calls that are written as JSON objects with a name and arguments."""

import json
from typing import Any

from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import MalformedError, Steps, TextReader

_ARGUMENTS = ("arguments", "parameters")


def json_call(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
    """Read one object `{"name": ..., "arguments": {...}}`, its keys in any order; others are read over.

    Raises:
        MalformedError: something else comes, or the function is not known.
    """
    yield from reader.expect("{")
    name: str | None = None
    early: str | None = None
    is_begun = False
    while True:
        yield from reader.space()
        key = yield from _string(reader)
        yield from reader.space()
        yield from reader.expect(":")
        yield from reader.space()
        if key == "name" and name is None:
            name = yield from _string(reader)
        elif key in _ARGUMENTS and early is None and not is_begun:
            if name is None:
                early = yield from json_text(reader)
            else:
                writer.begin(name)
                is_begun = True
                yield from json_arguments(reader, writer)
        else:
            yield from json_text(reader)
        yield from reader.space()
        if (yield from reader.begins("}")):
            break
        yield from reader.expect(",")
    if not is_begun:
        if name is None:
            raise MalformedError
        writer.begin(name)
        writer.arguments("{}" if early is None else object_text(early))
    writer.end()


def json_arguments(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
    """Read the arguments of the call that has begun: an object, or a string that holds one; null stands for none.

    Raises:
        MalformedError: something else comes.
    """
    if (yield from reader.peek()) != "{":
        writer.arguments(object_text((yield from json_text(reader))))
        return
    yield from reader.json_value(writer.arguments)


def json_text(reader: TextReader) -> Steps[str]:
    """The text of one JSON value.

    Raises:
        MalformedError: something else comes.
    """
    parts: list[str] = []
    yield from reader.json_value(parts.append)
    return "".join(parts).strip()


def object_text(text: str) -> str:
    """The object that a JSON text stands for: itself, one in a string, or an empty one for null.

    Raises:
        MalformedError: it is something else.
    """
    value: Any = _loaded(text)
    if isinstance(value, str):
        text = value
        value = _loaded(text)
        if not text.isascii() and _has_half_pairs(text):
            raise MalformedError
    if value is None:
        return "{}"
    if not isinstance(value, dict):
        raise MalformedError
    return text.strip()


def _string(reader: TextReader) -> Steps[str]:
    if (yield from reader.peek()) != '"':
        raise MalformedError
    text: str = _loaded((yield from json_text(reader)))
    return text


def _loaded(text: str) -> Any:
    try:
        return json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise MalformedError from error


def _has_half_pairs(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)
