"""gpt-oss: messages in channels; `analysis` is thinking, `commentary to=functions.NAME` a call, all else the answer."""

import re
from collections.abc import Callable
from functools import partial

from sgl_runtime.server.tool_parsers.json_calls import json_arguments
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import MalformedError, Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import Schemas, ToolFormat

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_RECIPIENT = re.compile(r"to=(?:functions\.)?([^\s<]+)")
_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")
_MAX_HEADER = 256


def _read(reader: TextReader, writer: ReplyWriter, schemas: Schemas) -> Steps[None]:
    opening = ""
    while opening or (yield from reader.peek()):
        begin = reader.position - len(opening)
        reader.record(opening)
        header = yield from _header(reader, is_open=bool(opening))
        if header is None:
            writer.text(reader.recorded())
            opening = yield from _body(reader, writer.text)
            continue
        channel, recipient = _CHANNEL_NAME.search(header), _RECIPIENT.search(header)
        if recipient is not None and recipient.group(1) in schemas:
            yield from writer.attempt(reader, header, partial(_call, reader, writer, recipient.group(1)))
            opening = "" if writer.is_behind_call else (yield from _body(reader, writer.text))
        elif recipient is None and channel is not None and channel.group(1) == "analysis":
            opening = yield from _body(reader, writer.reasoning)
            writer.end_reasoning(begin, reader.position - len(opening))
        else:
            # A call of a function that nobody offered is shown whole.
            writer.text(header if recipient is not None else "")
            opening = yield from _body(reader, writer.text)


def _header(reader: TextReader, *, is_open: bool) -> Steps[str | None]:
    """All up to the body of a message, its mark included; None where no message begins."""
    is_message = is_open or (yield from reader.begins(_START)) or (yield from reader.begins(_CHANNEL))
    if not is_message:
        # The role, which the prompt has written, may go on with a recipient.
        yield from reader.space()
        if not (yield from reader.begins("to=functions.")):
            return None
    while not (yield from reader.begins(_MESSAGE)):
        if not (yield from reader.peek()) or len(reader.recorded()) > _MAX_HEADER:
            return None
        reader.skip(1)
    return reader.recorded()


def _body(reader: TextReader, sink: Callable[[str], None]) -> Steps[str]:
    """Hand on all up to the end of the message; what was read of the next one."""
    return _START if (yield from reader.until((*_ENDS, _START), sink)) == _START else ""


def _call(reader: TextReader, writer: ReplyWriter, name: str) -> Steps[None]:
    yield from reader.space()
    writer.begin(name)
    yield from json_arguments(reader, writer)
    writer.end()
    yield from reader.space()
    for end in _ENDS:
        if (yield from reader.begins(end)):
            return
    if (yield from reader.peek()):
        raise MalformedError


HARMONY = ToolFormat(
    read=_read,
    marks=(_START, _CHANNEL, _MESSAGE, *_ENDS),
    template_signs=(_CHANNEL,),
    stops=("<|call|>",),
    has_channels=True,
)
