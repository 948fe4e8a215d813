"""DeepSeek V3 and R1 (the name behind the separator, arguments in a code fence) and V3.1 (the name in front of it)."""

from sgl_runtime.server.tool_parsers.call_sections import SectionMarks, read_sections
from sgl_runtime.server.tool_parsers.json_calls import json_arguments
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.text_reader import MalformedError, Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import Schemas, ToolFormat

_MARKS = SectionMarks(
    opening="<｜tool▁calls▁begin｜>",
    closing="<｜tool▁calls▁end｜>",
    call="<｜tool▁call▁begin｜>",
    call_end="<｜tool▁call▁end｜>",
)
_SEPARATOR = "<｜tool▁sep｜>"
_FENCE = "```"


def _read(reader: TextReader, writer: ReplyWriter, schemas: Schemas) -> Steps[None]:
    yield from read_sections(reader, writer, _MARKS, _call)


def _call(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
    head: list[str] = []
    if (yield from reader.until((_SEPARATOR,), head.append)) is None:
        raise MalformedError
    name = "".join(head).strip()
    yield from reader.space()
    is_fenced = (yield from reader.peek()) != "{"
    if is_fenced:
        line: list[str] = []
        yield from reader.until((_FENCE,), line.append)
        name = "".join(line).strip()
        yield from reader.begins("json")
        yield from reader.space()
    writer.begin(name)
    yield from json_arguments(reader, writer)
    writer.end()
    yield from reader.space()
    if is_fenced:
        yield from reader.begins(_FENCE)


DEEPSEEK = ToolFormat(
    read=_read,
    marks=(_MARKS.opening, _MARKS.call, _SEPARATOR, _MARKS.call_end, _MARKS.closing),
    begin=f"{_MARKS.opening}{_MARKS.call}function{_SEPARATOR}{{bare_name}}\n```json\n",
    end=f"\n```{_MARKS.call_end}{_MARKS.closing}",
    trigger=_MARKS.opening,
    template_signs=(_MARKS.opening,),
)
