"""Values of a wrong kind in every field of /v1/responses and /v1/messages: a reply or a 400 that names the field."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.chat_server import ChatServer
from fakes.odd_values import ODD
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.server.anthropic_api import AnthropicApi
from sgl_runtime.server.anthropic_body import ANTHROPIC_FIELDS
from sgl_runtime.server.chat.chat_service import ChatService
from sgl_runtime.server.responses_api import ResponsesApi
from sgl_runtime.server.responses_body import RESPONSES_FIELDS

USER = [{"role": "user", "content": "hi"}]
FLAT_TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
RESPONSE: dict[str, Any] = {"input": "hi", "max_output_tokens": 2}
MESSAGE: dict[str, Any] = {"messages": USER, "max_tokens": 2}


@pytest.fixture(scope="module", params=["hermes", "gpt-oss"])
def server(request: pytest.FixtureRequest) -> Iterator[ChatServer]:
    with ChatServer(tool_call_parser=request.param, reasoning_parser="qwen3") as server:
        yield server


def refusal(server: ChatServer, body: dict[str, Any]) -> InvalidRequestError | None:
    """Why a body is refused; None where it is not."""
    service = ChatService(server.manager)
    responses, messages = ResponsesApi(server.manager, service), AnthropicApi(server.manager, service)
    prepared: Any = messages.prepare(body) if "messages" in body else responses.prepare(body)
    try:
        asyncio.run_coroutine_threadsafe(prepared, server.loop).result(20)
    except InvalidRequestError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (RESPONSES_FIELDS, RESPONSE),
        (RESPONSES_FIELDS, {**RESPONSE, "tools": [FLAT_TOOL], "tool_choice": "required"}),
        (ANTHROPIC_FIELDS, MESSAGE),
        (ANTHROPIC_FIELDS, {**MESSAGE, "tools": [TOOL], "tool_choice": {"type": "any"}}),
    ],
)
def test_odd_values_are_answered(server: ChatServer, fields: tuple[str, ...], body: dict[str, Any]) -> None:
    num_refused = 0
    for field in fields:
        for value in ODD:
            error = refusal(server, {**body, field: value})
            num_refused += error is not None
            assert error is None or "sampling_params" not in error.message, error.message
    assert num_refused > 5 * len(fields)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("message", ("role", "content", "id", "status")),
        ("function_call", ("call_id", "name", "arguments", "id")),
        ("function_call_output", ("call_id", "output")),
        ("reasoning", ("summary", "content", "encrypted_content")),
    ],
)
def test_odd_values_in_items_are_answered(server: ChatServer, kind: str, names: tuple[str, ...]) -> None:
    whole = {
        "type": kind, "role": "user", "content": [], "call_id": "c", "name": "f", "arguments": "{}", "output": "x",
        "summary": [],
    }  # fmt: skip
    for name in names:
        for value in [*ODD, [{"type": "input_text", "text": []}], [{"type": "summary_text"}]]:
            error = refusal(server, {**RESPONSE, "input": [{**whole, name: value}]})
            assert error is None or (error.param or "").startswith("input[0]"), error.message
    for value in ODD:
        refusal(server, {**RESPONSE, "input": [value]})


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_odd_values_in_blocks_are_answered(server: ChatServer, role: str) -> None:
    block = {"text": "x", "thinking": "x", "id": "i", "name": "f", "input": {}, "tool_use_id": "i", "content": "x"}
    for kind in ("text", "thinking", "tool_use", "tool_result"):
        for name in block:
            for value in ODD:
                content = [{**block, "type": kind, name: value}]
                error = refusal(server, {**MESSAGE, "messages": [{"role": role, "content": content}]})
                where = (None, "messages", "continue_final_message") if role == "assistant" else (None,)
                assert error is None or (error.param or "").startswith("messages[0]") or error.param in where, (
                    error.message
                )
    for value in ODD:
        refusal(server, {**MESSAGE, "messages": [{"role": role, "content": value}], "system": value})
