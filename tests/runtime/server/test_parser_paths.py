"""`/parse_function_call` and `/separate_reasoning`."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from fakes.chat_server import ChatServer

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(tool_call_parser="hermes") as server:
        yield server


def post(server: ChatServer, path: str, **body: Any) -> tuple[int, Any]:
    reply = requests.post(server.url + path, json=body, timeout=20)
    return reply.status_code, reply.json()


def test_calls_in_a_text(server: ChatServer) -> None:
    text = 'So. <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    calls = [{"tool_index": 0, "name": "f", "parameters": '{"a": 1}'}]
    assert post(server, "/parse_function_call", text=text, tools=TOOLS) == (200, {"normal_text": "So.", "calls": calls})
    given = {"text": "[f(a=1)]", "tools": TOOLS, "tool_call_parser": "pythonic"}
    assert post(server, "/parse_function_call", **given) == (200, {"normal_text": "", "calls": calls})
    assert post(server, "/parse_function_call", text=text)[1] == {"normal_text": text, "calls": []}


def test_thinking_in_a_text(server: ChatServer) -> None:
    for name, text in (
        ("qwen3", "<think>\na\n</think>\n\nb"),
        ("deepseek-r1", "a</think>b"),
        ("gpt-oss", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b"),
    ):
        reply = post(server, "/separate_reasoning", text=text, reasoning_parser=name)
        assert reply == (200, {"reasoning_text": "a", "text": "b"})
    assert post(server, "/separate_reasoning", text="b", reasoning_parser="qwen3")[1] == {
        "reasoning_text": "",
        "text": "b",
    }


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        ("/parse_function_call", {"tools": TOOLS}, "text", "a string"),
        ("/parse_function_call", {"text": "a", "tool_call_parser": "x"}, "tool_call_parser", "hermes"),
        ("/parse_function_call", {"text": "a", "tools": [1]}, "tools[0]", "an object"),
        ("/separate_reasoning", {"text": "a"}, "reasoning_parser", "left out"),
        ("/separate_reasoning", {"text": "a", "reasoning_parser": 5}, "reasoning_parser", "qwen3"),
    ],
)
def test_wrong_fields_are_named(server: ChatServer, path: str, body: Any, param: str, message: str) -> None:
    status, reply = post(server, path, **body)
    assert (status, reply["error"]["param"]) == (400, param)
    assert message in reply["error"]["message"]
