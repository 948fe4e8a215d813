"""Forced tool calls and JSON objects of the small real model."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from jsonschema import Draft202012Validator

from fakes.server_process import REAL, ServerProcess

pytestmark = pytest.mark.model

PLACE = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"place": {"$ref": "#/$defs/place"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["place", "days"],
            "$defs": {"place": PLACE},
        },
    },
    {
        "name": "paint",
        "parameters": {"type": "object", "properties": {"color": {"enum": ["red", "blue"]}}, "required": ["color"]},
    },
]
SCHEMAS = {tool["name"]: tool["parameters"] for tool in TOOLS}
FUNCTIONS = [{"type": "function", "function": tool} for tool in TOOLS]
ASKED = [{"role": "user", "content": "How is the weather in Paris for three days?"}]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    server = ServerProcess(
        "--max-total-tokens", "4096", "--tool-call-parser", "hermes", model_path="smollm2", main=REAL
    )
    try:
        server.wait_for_line("serving url=")
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
            yield client
    finally:
        server.close()


def checked_calls(calls: Any) -> list[str]:
    for call in calls:
        Draft202012Validator(SCHEMAS[call.function.name]).validate(json.loads(call.function.arguments))
    return [call.function.name for call in calls]


@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        ("required", {"get_weather", "paint"}),
        ({"type": "function", "function": {"name": "paint"}}, {"paint"}),
    ],
)
def test_forced_calls_are_valid(client: Any, choice: Any, allowed: set[str]) -> None:
    options = {"model": "smollm2", "messages": ASKED, "tools": FUNCTIONS, "temperature": 0, "max_tokens": 120}
    reply = client.chat.completions.create(**options, tool_choice=choice, parallel_tool_calls=False)
    assert reply.choices[0].finish_reason == "tool_calls"
    names = checked_calls(reply.choices[0].message.tool_calls)
    assert len(names) == 1
    assert set(names) <= allowed
    arguments = ""
    for chunk in client.chat.completions.create(**options, tool_choice=choice, parallel_tool_calls=False, stream=True):
        for call in chunk.choices[0].delta.tool_calls or ():
            arguments += call.function.arguments
    assert arguments == reply.choices[0].message.tool_calls[0].function.arguments


@pytest.mark.slow
def test_strict_functions_and_a_schema_of_the_answer_are_enforced_together(client: Any) -> None:
    strict = [{"type": "function", "function": {**tool, "strict": True}} for tool in TOOLS]
    form = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": PLACE}}
    reply = client.chat.completions.create(
        model="smollm2", messages=ASKED, tools=strict, response_format=form, temperature=0, max_tokens=120
    )
    message = reply.choices[0].message
    if message.tool_calls:
        checked_calls(message.tool_calls)
    else:
        Draft202012Validator(PLACE).validate(json.loads(message.content))


@pytest.mark.slow
def test_a_json_object(client: Any) -> None:
    reply = client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": "Describe Paris as JSON with two short fields."}],
        response_format={"type": "json_object"},
        temperature=0,
        max_tokens=80,
    )
    if reply.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(reply.choices[0].message.content), dict)
    else:
        assert reply.choices[0].message.content.startswith("{")
