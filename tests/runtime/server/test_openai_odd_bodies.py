"""Values of a wrong kind in every field of the OpenAI paths: a reply or a 400 that names the field, and nothing else."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.chat_server import ChatServer
from fakes.odd_values import ODD
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.server.openai_api import OpenAIApi
from sgl_runtime.server.openai_chat_body import CHAT_FIELDS
from sgl_runtime.server.openai_completion_body import COMPLETION_FIELDS

USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}


@pytest.fixture(scope="module", params=["hermes", "gpt-oss"])
def server(request: pytest.FixtureRequest) -> Iterator[ChatServer]:
    with ChatServer(tool_call_parser=request.param, reasoning_parser="qwen3") as server:
        yield server


def refusal(server: ChatServer, path: str, body: dict[str, Any]) -> InvalidRequestError | None:
    """Why a body is refused; None where it is not."""
    api = OpenAIApi(server.manager)
    prepared = api.chat.prepare(body) if path == "chat/completions" else api.completions.prepare(body)
    try:
        asyncio.run_coroutine_threadsafe(prepared, server.loop).result(20)
    except InvalidRequestError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("path", "fields", "body"),
    [
        ("chat/completions", CHAT_FIELDS, {"messages": USER}),
        ("chat/completions", CHAT_FIELDS, {"messages": USER, "tools": [TOOL], "tool_choice": "required"}),
        (
            "chat/completions",
            CHAT_FIELDS,
            {"messages": USER, "tools": [TOOL], "response_format": {"type": "json_object"}},
        ),
        ("completions", COMPLETION_FIELDS, {"prompt": "p"}),
    ],
)
def test_odd_values_are_answered(server: ChatServer, path: str, fields: tuple[str, ...], body: dict[str, Any]) -> None:
    num_refused = 0
    for field in fields:
        for value in ODD:
            error = refusal(server, path, {**body, "max_tokens": 2, field: value})
            num_refused += error is not None
            assert error is None or "sampling_params" not in error.message, error.message
    assert num_refused > 5 * len(fields)


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_odd_values_in_messages_are_answered(server: ChatServer, role: str) -> None:
    names = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "refusal")
    for name in names:
        for value in ODD:
            for inner in (value, [value]):
                error = refusal(server, "chat/completions", {"messages": [{"role": role, "content": "a", name: inner}]})
                assert error is None or (error.param or "").startswith("messages"), error.message


@pytest.mark.parametrize("name", ["self", "messages", "tools", "tokenize", "add_generation_prompt", "a b", "\ud800"])
def test_names_of_template_variables_cannot_do_harm(server: ChatServer, name: str) -> None:
    for value in ODD:
        error = refusal(server, "chat/completions", {"messages": USER, "chat_template_kwargs": {name: value}})
        assert error is None or "chat_template_kwargs" in (error.param or "")


def test_a_body_that_is_no_object_is_refused(server: ChatServer) -> None:
    for value in (None, 5, "x", [USER]):
        for path in ("chat/completions", "completions"):
            error = refusal(server, path, value)  # type: ignore[arg-type]
            assert error is not None
            assert "must be an object" in error.message
