"""Paths that split a text that a model wrote: its tool calls, its thinking."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.model_info import ModelInfo
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.chat.chat_reply import joined
from sgl_runtime.server.chat.thinking import Thinking, read_thinking
from sgl_runtime.server.field_checks import checked_fields, checked_text
from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.openai_tools import checked_tools
from sgl_runtime.server.reasoning_parsers import REASONING_PARSERS, reasoning_style
from sgl_runtime.server.tool_parsers.events import ReplyEvent
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.table import TOOL_PARSERS, tool_format
from sgl_runtime.server.tool_parsers.text_parser import TextParser
from sgl_runtime.server.tool_parsers.text_reader import Steps, TextReader

MAX_TEXT = 1_000_000
"""Characters of a text that is split."""

_PIECE = 2048
_CHANNELS = "gpt-oss"


class ParserPaths:
    """`/parse_function_call` and `/separate_reasoning`.

    Args:
        model_info: Says which parsers are taken where a request names none.
    """

    def __init__(self, model_info: ModelInfo) -> None:
        self._info = model_info

    def paths(self) -> Mapping[str, NativePath]:
        """Each path, and how it is answered."""
        return {
            "/parse_function_call": NativePath(answer=self._parse_function_call),
            "/separate_reasoning": NativePath(answer=self._separate_reasoning),
        }

    async def _parse_function_call(self, payload: Any) -> dict[str, Any]:
        """Tell the tool calls in a text from the rest of it."""
        fields = checked_fields(payload, ("text", "tools", "tool_call_parser"))
        text = _checked_output(fields.get("text"))
        schemas = {tool.name: tool.parameters for tool in checked_tools(fields.get("tools", []))}
        name = _parser_name("tool_call_parser", fields, TOOL_PARSERS.names(), self._info.tool_call_parser)
        form = tool_format(name)

        def read(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
            return form.read(reader, writer, schemas)

        parser = TextParser(read, ReplyWriter(schemas))
        choice = joined(await _parsed(parser, text))
        calls = [
            {"tool_index": index, "name": call.name, "parameters": call.arguments}
            for index, call in enumerate(choice.calls)
        ]
        return {"normal_text": choice.content, "calls": calls}

    async def _separate_reasoning(self, payload: Any) -> dict[str, Any]:
        """Tell the thinking in a text from the answer."""
        fields = checked_fields(payload, ("text", "reasoning_parser"))
        text = _checked_output(fields.get("text"))
        marks = self._info.reasoning_parser
        name = _parser_name("reasoning_parser", fields, list(REASONING_PARSERS), None if marks is None else marks.name)
        style = reasoning_style(REASONING_PARSERS[name])

        def channels(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
            return tool_format(_CHANNELS).read(reader, writer, {})

        tagged = partial(
            read_thinking, marks=style.marks, thinking=Thinking.MAY_BEGIN, begins_inside=style.begins_inside
        )
        parser = TextParser(channels if name == _CHANNELS else tagged, ReplyWriter())
        choice = joined(await _parsed(parser, text))
        return {"reasoning_text": choice.reasoning, "text": choice.content}


def _checked_output(value: Any) -> str:
    text = checked_text("text", value)
    if len(text) > MAX_TEXT:
        raise InvalidRequestError(f"text has {len(text)} characters; at most {MAX_TEXT} are taken", param="text")
    return text


async def _parsed(parser: TextParser, text: str) -> list[ReplyEvent]:
    """The events of a text, which others get their turn between the pieces of."""
    events: list[ReplyEvent] = []
    for begin in range(0, len(text), _PIECE):
        events += parser.feed(text[begin : begin + _PIECE])
        await asyncio.sleep(0)
    return [*events, *parser.finish()]


def _parser_name(field: str, fields: dict[str, Any], known: list[str], served: str | None) -> str:
    name = fields.get(field, served)
    if name is None:
        raise InvalidRequestError(
            f"{field} is left out, and the server was started without; it must be one of {', '.join(known)}",
            param=field,
        )
    if name not in known:
        raise reject(field, name, f"one of {', '.join(known)}")
    return str(name)
