"""Formats of tool calls: what models write, whole and broken, in pieces of any size."""

import json
import random
import re
from collections.abc import Iterator
from typing import get_args

import pytest

from fakes.format_outputs import BROKEN, LONG, SCHEMAS, WHOLE, Case
from sgl_runtime.config import ToolParserName
from sgl_runtime.server.chat.chat_reply import ChatChoice, joined
from sgl_runtime.server.tool_parsers.events import ReplyEvent
from sgl_runtime.server.tool_parsers.json_list import JSON_LIST
from sgl_runtime.server.tool_parsers.reply_writer import ReplyWriter
from sgl_runtime.server.tool_parsers.table import TOOL_PARSERS, detected_parser, tool_format
from sgl_runtime.server.tool_parsers.text_parser import TextParser
from sgl_runtime.server.tool_parsers.text_reader import Steps, TextReader
from sgl_runtime.server.tool_parsers.tool_format import ToolFormat

BROKEN_TEXTS = [(name, text) for name, texts in BROKEN.items() for text in texts]


def events_of(form: ToolFormat, pieces: list[str], *, max_calls: int | None = None) -> list[list[ReplyEvent]]:
    def read(reader: TextReader, writer: ReplyWriter) -> Steps[None]:
        return form.read(reader, writer, SCHEMAS)

    parser = TextParser(read, ReplyWriter(SCHEMAS, max_calls=max_calls))
    return [*map(parser.feed, pieces), parser.finish()]


def parsed(form: ToolFormat, pieces: list[str], *, max_calls: int | None = None) -> ChatChoice:
    choice = joined([event for events in events_of(form, pieces, max_calls=max_calls) for event in events])
    for call in choice.calls:
        assert re.fullmatch("call_[0-9a-f]{24}", call.id)
        call.id = ""
    return choice


def splits(text: str, rng: random.Random) -> Iterator[list[str]]:
    """The text cut into characters, and in some other ways."""
    yield list(text)
    for longest in (2, 5, 30):
        pieces, begin = [], 0
        while begin < len(text):
            size = rng.randint(1, longest)
            pieces.append(text[begin : begin + size])
            begin += size
        yield pieces


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.format)
def test_calls_and_text_are_told_apart_however_the_text_is_cut(case: Case) -> None:
    form = tool_format(case.format)
    whole = parsed(form, [case.text])
    assert [(call.name, json.loads(call.arguments)) for call in whole.calls] == list(case.calls)
    assert (whole.content, whole.reasoning) == (case.content, case.reasoning)
    for pieces in splits(case.text, random.Random(7)):
        assert parsed(form, pieces) == whole, pieces


@pytest.mark.parametrize(("name", "text"), BROKEN_TEXTS)
def test_what_is_no_call_stays_text(name: str, text: str) -> None:
    form = tool_format(name)
    assert parsed(form, [text]) == ChatChoice(0, content=text)
    for pieces in splits(text, random.Random(7)):
        assert parsed(form, pieces) == ChatChoice(0, content=text), pieces


@pytest.mark.parametrize("name", TOOL_PARSERS.names())
def test_shuffled_pieces_of_outputs_end_and_do_not_depend_on_the_cut(name: str) -> None:
    rng = random.Random(f"shuffled {name}")
    form = tool_format(name)
    texts = [case.text for case in WHOLE if case.format == name] + BROKEN.get(name, [])
    texts = texts or [case.text for case in WHOLE if tool_format(case.format) is form]
    for _ in range(40):
        parts = [re.split(r"(?<=[>\]}\"])", rng.choice(texts)) for _ in range(3)]
        mixed = "".join(rng.choice(rng.choice(parts)) for _ in range(rng.randint(1, 25)))
        whole = parsed(form, [mixed])
        for pieces in splits(mixed, rng):
            assert parsed(form, pieces) == whole, pieces


def test_a_call_after_a_broken_one_is_found() -> None:
    text = '<tool_call>oops <tool_call>{"name": "now"}</tool_call> done'
    choice = parsed(tool_format("hermes"), [text])
    assert (choice.content, [call.name for call in choice.calls]) == ("<tool_call>oopsdone", ["now"])


def test_long_arguments_come_as_they_are_written() -> None:
    text = f'<tool_call>{{"name": "get_weather", "arguments": {{"city": "{LONG}{LONG}"}}}}</tool_call>'
    shown = [sum(map(len, map(str, events))) for events in events_of(tool_format("hermes"), list(text))]
    first = next(place for place, size in enumerate(shown) if size)
    # The beginning is held back until it is long enough to be believed; all else comes at once.
    assert text.index("{", 12) + 250 < first < text.index("{", 12) + 300
    assert sum(size > 0 for size in shown[first:]) > 300


def test_what_breaks_after_it_was_shown_keeps_what_was_shown() -> None:
    text = f'<tool_call>{{"name": "get_weather", "arguments": {{"city": "{LONG}" oops'
    whole = parsed(tool_format("hermes"), [text])
    assert whole.calls[0].arguments == f'{{"city": "{LONG}" '
    assert whole.content == "oops"
    for pieces in splits(text, random.Random(3)):
        assert parsed(tool_format("hermes"), pieces) == whole


def test_one_call_alone_where_only_one_is_wanted() -> None:
    text = '[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "add", "arguments": {}}]'
    assert [call.name for call in parsed(tool_format("mistral"), [text], max_calls=1).calls] == ["now"]
    assert [call.name for call in parsed(tool_format("mistral"), list(text), max_calls=1).calls] == ["now"]


def test_a_forced_list_of_calls() -> None:
    text = '[{"name": "add", "parameters": {"a": 1}}, {"name": "now", "parameters": {}}]'
    choice = parsed(JSON_LIST, [text])
    assert [(call.name, call.arguments) for call in choice.calls] == [("add", '{"a": 1}'), ("now", "{}")]
    for pieces in splits(text, random.Random(5)):
        assert parsed(JSON_LIST, pieces) == choice
    cut = parsed(JSON_LIST, [text[:30]])
    assert (cut.calls, cut.content) == ([], text[:30])


def test_the_table_has_the_names_of_the_option() -> None:
    assert TOOL_PARSERS.names() == sorted(get_args(ToolParserName))


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{- '<tool_call>' }} within <tool_call></tool_call> XML tags", "hermes"),
        ("<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>", "qwen3_coder"),
        (r"{{ 'in this format:\n<tool_call>\n<function=example_function_name>' }}", "qwen3_coder"),
        ("<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>", "glm45"),
        ("<seed:tool_call>\n<function=example_function_name>", None),
        ("{{ '<|tool_calls_section_begin|>' }}", "kimi_k2"),
        ("Use the format [func_name1(param1=value1), func_name2(...)]", "pythonic"),
        ("{{ '[TOOL_CALLS] [' }}", "mistral"),
        ("{{ '<｜tool▁calls▁begin｜>' }}", "deepseekv3"),
        ("{{ '<|python_tag|>' + tool_call.name }}", "llama3"),
        ("<|channel|>analysis<|message|>", "gpt-oss"),
        ("<|python_start|>[func_name1(params_name1=params_value1)]<|python_end|>", "pythonic"),
        ("{% for message in messages %}{{ message.content }}{% endfor %}", None),
    ],
)
def test_a_template_shows_its_format(template: str, name: str | None) -> None:
    assert detected_parser(template) == name
