"""Kimi K2: in a section, `functions.NAME:INDEX` and the arguments as JSON for each call."""

import re

from sgl_runtime.server.tool_parsers.call_sections import SectionMarks, read_sections
from sgl_runtime.server.tool_parsers.json_calls import json_arguments
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import MalformedError, Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import Schemas, ToolFormat

_MARKS = SectionMarks(
    opening="<|tool_calls_section_begin|>",
    closing="<|tool_calls_section_end|>",
    call="<|tool_call_begin|>",
    call_end="<|tool_call_end|>",
)
_ARGUMENTS = "<|tool_call_argument_begin|>"
_CALL_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")


def _read(reader: TextReader, writer: ReplyWriter, schemas: Schemas) -> Steps[None]:
    yield from read_sections(reader, writer, _MARKS, _call)


def _call(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
    head: list[str] = []
    found = yield from reader.until((_ARGUMENTS,), head.append)
    name = _CALL_ID.fullmatch("".join(head).strip())
    if found is None or name is None:
        raise MalformedError
    yield from reader.space()
    writer.begin(name.group(1))
    yield from json_arguments(reader, writer)
    writer.end()


KIMI = ToolFormat(
    read=_read,
    marks=(_MARKS.opening, _MARKS.call, _ARGUMENTS, _MARKS.call_end, _MARKS.closing),
    begin=f"{_MARKS.opening}{_MARKS.call}functions.{{bare_name}}:0{_ARGUMENTS}",
    end=f"{_MARKS.call_end}{_MARKS.closing}",
    trigger=_MARKS.opening,
    template_signs=(_MARKS.opening,),
)
