"""/v1/messages with Anthropic's client: whole messages, and streams that add up to the same."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pydantic
import pytest
import requests

from fakes.chat_server import ChatServer, prompt_text

USER = [{"role": "user", "content": "hi"}]
THOUGHT = "<think>\nHm, what?\n</think>\n\nIt is é."
PARIS = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOLS: list[dict[str, Any]] = [
    {"name": "get_weather", "description": "does it", "input_schema": {"type": "object"}},
    {"name": "now", "input_schema": {"type": "object"}, "type": "custom", "cache_control": {"type": "ephemeral"}},
]
THINKING = {"type": "adaptive"}


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(reasoning_parser="qwen3", tool_call_parser="hermes") as server:
        yield server


def client_of(server: ChatServer, api_key: str = "none") -> Any:
    return anthropic.Anthropic(base_url=server.url, api_key=api_key, max_retries=0, timeout=20)


@pytest.fixture
def client(server: ChatServer) -> Iterator[Any]:
    with client_of(server) as client:
        yield client


def plain(message: Any) -> dict[str, Any]:
    """A message without what differs from one to the next, and without nulls that the client fills in."""
    told: dict[str, Any] = message.to_dict()
    del told["id"]
    told["content"] = [
        {
            name: value
            for name, value in block.items()
            if value is not None and (name, block["type"]) != ("id", "tool_use")
        }
        for block in told["content"]
    ]
    told["usage"] = {name: value for name, value in told["usage"].items() if value is not None}
    return {name: value for name, value in told.items() if value is not None}


def both(client: Any, **options: Any) -> Any:
    """The whole message, which is that of the stream."""
    body = {"model": "x", "max_tokens": 200, "messages": USER, **options}
    message = client.messages.create(**body)
    kinds: list[str] = []
    with client.messages.stream(**body) as stream:
        kinds.extend(event.type for event in stream)
        assert plain(stream.get_final_message()) == plain(message)
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    return message


def test_a_text(server: ChatServer, client: Any) -> None:
    server.say("It is é.")
    message = both(client)
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "It is é."}]
    assert (message.stop_reason, message.stop_sequence, message.role) == ("end_turn", None, "assistant")
    num_prompt = len(server.scheduler.requests[-1].input_ids)
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens) == (num_prompt - 3, 3)
    assert usage.output_tokens == len("It is é.".encode()) + 1


def test_replies_and_errors_have_the_id_that_clients_look_for(server: ChatServer, client: Any) -> None:
    server.say("ok")
    given = {"x-request-id": "mine"}
    assert client.messages.create(model="x", max_tokens=9, messages=USER, extra_headers=given)._request_id == "mine"
    with client.messages.stream(model="x", max_tokens=9, messages=USER, extra_headers=given) as stream:
        assert stream.request_id == "mine"
    with pytest.raises(anthropic.BadRequestError, match="max_tokens is 0") as caught:
        client.messages.create(model="x", max_tokens=0, messages=USER, extra_headers=given)
    assert caught.value.request_id == "mine"


def test_events_have_names(server: ChatServer) -> None:
    server.say("ok")
    body = {"max_tokens": 9, "messages": USER, "stream": True}
    text = requests.post(f"{server.url}/v1/messages", json=body, timeout=20).text
    events = [chunk.split("\n") for chunk in text.strip().split("\n\n")]
    names = [name.removeprefix("event: ") for name, _ in events]
    assert names == [json.loads(data.removeprefix("data: "))["type"] for _, data in events]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_thinking_is_shown_where_it_is_asked_for(server: ChatServer, client: Any) -> None:
    server.say(THOUGHT)
    thinking, text = both(client, thinking=THINKING).content
    assert (thinking.thinking, text.text) == ("Hm, what?", "It is é.")
    assert server.template.rendered[-1][1]["enable_thinking"] is True
    for options in ({}, {"thinking": {"type": "disabled"}}):
        message = both(client, **options)
        assert [block.text for block in message.content] == ["It is é."]
        assert message.usage.output_tokens_details.thinking_tokens == len("<think>\nHm, what?\n</think>")
        assert server.template.rendered[-1][1]["enable_thinking"] is False
    assert len(both(client, thinking={**THINKING, "display": "omitted"}).content) == 1


def test_thinking_has_a_budget(server: ChatServer, client: Any) -> None:
    server.say(lambda message: "yes" if "</think>" in prompt_text(message) else "on and on and on")
    budget = {"type": "enabled", "budget_tokens": 9}
    message = both(client, thinking=budget)
    assert [block.to_dict() for block in message.content] == [
        {"type": "thinking", "thinking": "on and on", "signature": ""},
        {"type": "text", "text": "yes"},
    ]
    assert message.usage.output_tokens == 9 + len("yes") + 1
    assert message.usage.output_tokens_details.thinking_tokens == 9
    assert prompt_text(server.scheduler.requests[-1]).endswith("<think>\non and on</think>\n\n")
    cut = both(client, thinking=budget, max_tokens=11)
    assert (cut.content[1].text, cut.stop_reason, cut.usage.output_tokens) == ("ye", "max_tokens", 11)
    server.say(lambda message: "yes" if "</think>" in prompt_text(message) else "so</think>")
    assert [block.type for block in both(client, thinking={**budget, "budget_tokens": 100}).content] == [
        "thinking",
        "text",
    ]


def test_calls_are_blocks(server: ChatServer, client: Any) -> None:
    server.say("I look.\n" + PARIS + PARIS)
    message = both(client, tools=TOOLS)
    text, *calls = message.content
    assert (text.text, message.stop_reason) == ("I look.", "tool_use")
    assert [(call.name, call.input) for call in calls] == [("get_weather", {"city": "Paris"})] * 2
    assert all(call.id.startswith("toolu_") for call in calls)
    assert len({call.id for call in calls}) == 2
    shown = server.template.rendered[-1][1]["tools"][0]["function"]
    assert shown == {"name": "get_weather", "description": "does it", "parameters": {"type": "object"}}
    one = both(client, tools=TOOLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert len(one.content) == 2


def test_choices_of_tools(server: ChatServer, client: Any) -> None:
    server.say(lambda message: '[{"name": "now", "parameters": {}}]' if message.sampling.json_schema else "go</think>")
    for choice in ({"type": "any"}, {"type": "tool", "name": "now"}):
        message = both(client, tools=TOOLS, tool_choice=choice, thinking=THINKING)
        assert [block.type for block in message.content] == ["thinking", "tool_use"]
        assert (message.content[1].input, message.stop_reason) == ({}, "tool_use")
    server.say(PARIS)
    assert both(client, tools=TOOLS, tool_choice={"type": "none"}).content[0].text == PARIS


def test_calls_that_the_limit_cuts_are_shown_as_far_as_they_came(server: ChatServer, client: Any) -> None:
    call = '[{"name": "now", "parameters": {"a": [1, 2], "b": "so'
    server.say(lambda message: call if message.sampling.json_schema else "</think>")
    options = {"tools": TOOLS, "tool_choice": {"type": "any"}}
    message = both(client, **options, max_tokens=len("</think>") + len(call))
    assert (message.content[0].input, message.stop_reason) == ({"a": [1, 2]}, "max_tokens")


def test_stops(server: ChatServer, client: Any) -> None:
    server.say("one two three")
    message = both(client, stop_sequences=["x", " th"])
    assert (message.content[0].text, message.stop_reason, message.stop_sequence) == ("one two", "stop_sequence", " th")
    message = both(client, max_tokens=5)
    assert (message.content[0].text, message.stop_reason) == ("one t", "max_tokens")
    server.say("x" * 9000)
    message = both(client, max_tokens=100_000)
    assert message.stop_reason == "model_context_window_exceeded"


def test_a_schema(server: ChatServer, client: Any) -> None:
    class Answer(pydantic.BaseModel):
        a: int

    server.say(lambda message: '{"a": 1}' if message.sampling.json_schema else "go</think>")
    form = {"type": "json_schema", "schema": {"type": "object"}}
    message = both(client, output_config={"format": form, "effort": "low"})
    assert message.content[0].text == '{"a": 1}'
    assert server.template.rendered[-1][1]["reasoning_effort"] == "low"
    parsed = client.messages.parse(model="x", max_tokens=50, messages=USER, output_format=Answer)
    assert parsed.parsed_output == Answer(a=1)


def test_settings_reach_the_request(server: ChatServer, client: Any) -> None:
    server.say("ok")
    both(
        client,
        system=[{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "always"}],
        max_tokens=9,
        metadata={"user_id": "u"},
        service_tier="auto",
        extra_body={"temperature": 0.5, "top_p": 0.5, "top_k": 3, "seed": 5, "chat_template_kwargs": {"x": 1}},
    )  # fmt: skip
    sampling = server.scheduler.requests[-1].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.sampling_seed) == (0.5, 0.5, 3, 5)
    messages, variables = server.template.rendered[-1]
    assert messages[0] == {"role": "system", "content": "be kind\n\nalways"}
    assert variables["x"] == 1


def test_blocks_become_messages(server: ChatServer, client: Any) -> None:
    server.say("ok")
    call = {"type": "tool_use", "name": "now", "input": {"a": 1}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {"role": "user", "content": "more"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "let me see"},
                {**call, "id": "t1"},
                {**call, "id": "t2"},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "1"},
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "2"}], "is_error": True},
                {"type": "text", "text": "well?"},
            ],
        },
    ]  # fmt: skip
    both(client, messages=messages, tools=TOOLS)
    function = {"name": "now", "arguments": {"a": 1}}
    assert server.template.rendered[-1][0] == [
        {"role": "user", "content": "one\n\nmore"},
        {
            "role": "assistant",
            "content": "let me see",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": function},
                {"id": "t2", "type": "function", "function": function},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "1"},
        {"role": "tool", "tool_call_id": "t2", "content": "2"},
        {"role": "user", "content": "well?"},
    ]


def test_an_answer_that_has_begun_goes_on(server: ChatServer, client: Any) -> None:
    server.say(" fine")
    message = both(client, messages=[*USER, {"role": "assistant", "content": "It is"}])
    assert message.content[0].text == " fine"
    assert prompt_text(server.scheduler.requests[-1]).endswith("<turn>assistant\nIt is")


def test_the_length_of_a_prompt(server: ChatServer, client: Any) -> None:
    server.say("ok")
    options = {"model": "x", "messages": USER, "system": "be kind", "tools": TOOLS}
    usage = client.messages.create(**options, max_tokens=5).usage
    count = client.messages.count_tokens(**options).input_tokens
    assert count == usage.input_tokens + usage.cache_read_input_tokens


IMAGE = {"type": "image", "source": {"type": "url", "url": "x"}}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"max_tokens": None}, "max_tokens is missing"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"messages": []}, "messages is []"),
        ({"messages": [5]}, "messages[0] is 5"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role is 'tool'"),
        ({"messages": [{"role": "user"}]}, "messages[0].content is missing"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages[0].content[0] is 5"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0] is of type image"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text is missing"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use"}]}]},
            "messages[0].content[0].type is 'tool_use'",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0].tool_use_id"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [IMAGE]}]}
                ]
            },
            "messages[0].content[0].content[0] is of type image",
        ),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "messages[0].content[0].input"),
        ({"system": 5}, "system is 5"),
        ({"system": [IMAGE]}, "system[0] is of type image"),
        ({"temperature": -1}, "temperature is -1"),
        ({"stop_sequences": "x"}, "stop_sequences is 'x'"),
        ({"stop_sequences": [""]}, "stop_sequences[0] is ''"),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema is missing"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name is missing"),
        ({"tools": [{"type": "web_search_20250305", "name": "x"}]}, "tools[0].type is 'web_search_20250305'"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].name is 'get_weather'"),
        ({"tools": TOOLS, "tool_choice": {"type": "x"}}, "tool_choice.type is 'x'"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name is 'x'"),
        ({"tool_choice": {"type": "any"}}, "tool_choice.type is 'any' without tools"),
        ({"thinking": {"type": "x"}}, "thinking.type is 'x'"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens is missing"),
        ({"thinking": {"type": "enabled", "budget_tokens": 50}}, "thinking.budget_tokens is 50"),
        ({"thinking": {"type": "adaptive", "budget_tokens": 5}}, "thinking.budget_tokens is 5"),
        ({"thinking": {"type": "adaptive", "display": "x"}}, "thinking.display is 'x'"),
        ({"output_config": {"effort": "x"}}, "output_config.effort is 'x'"),
        ({"output_config": {"format": {"type": "x"}}}, "output_config.format.type is 'x'"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema is missing"),
        ({"metadata": {"x": 1}}, "metadata.x is not a known field"),
        ({"container": "x"}, "container is not supported"),
        ({"stop": "x"}, "stop is not supported; give stop_sequences"),
        ({"system_prompt": "x"}, "system_prompt is not a known field"),
        ({"regex": "("}, "regex: unclosed group"),
    ],
)
def test_what_is_wrong_is_named(server: ChatServer, body: dict[str, Any], named: str) -> None:
    server.say("x")
    sent = {"model": "x", "max_tokens": 50, "messages": USER, **body}
    reply = requests.post(f"{server.url}/v1/messages", json=sent, timeout=20)
    told = reply.json()
    assert (reply.status_code, told["type"], told["error"]["type"]) == (400, "error", "invalid_request_error")
    assert named in told["error"]["message"]


def test_a_failure_behind_the_thinking_is_an_event(server: ChatServer, client: Any) -> None:
    server.say("go</think>")
    options = {"model": "x", "max_tokens": 50, "messages": USER, "extra_body": {"regex": "("}}
    stream = client.messages.create(**options, thinking=THINKING, stream=True)
    assert next(stream).type == "message_start"
    with pytest.raises(anthropic.APIStatusError, match="unclosed group") as caught:
        list(stream)
    assert caught.value.body["error"]["type"] == "invalid_request_error"


def test_a_client_that_goes_away_ends_its_request(server: ChatServer) -> None:
    server.scheduler.hold_after = 3
    for stream in (False, True):
        body = {"max_tokens": 50, "messages": [{"role": "user", "content": "FOREVER"}], "stream": stream}
        with pytest.raises((requests.Timeout, requests.ConnectionError)):
            requests.post(f"{server.url}/v1/messages", json=body, timeout=0.2)
        for _ in range(2000):
            if requests.get(f"{server.url}/health", timeout=20).ok and not server.scheduler.running:
                break
        assert not server.scheduler.running
        assert server.manager.num_live == 0


def test_keys_come_as_this_client_sends_them() -> None:
    with ChatServer(api_key=["secret"]) as server:
        server.say("ok")
        with client_of(server, "secret") as client:
            assert client.messages.create(model="x", max_tokens=5, messages=USER).content[0].text == "ok"
        with client_of(server, "wrong") as client, pytest.raises(anthropic.AuthenticationError) as caught:
            client.messages.create(model="x", max_tokens=5, messages=USER)
        assert caught.value.body["error"]["type"] == "authentication_error"


def test_a_full_server_says_so() -> None:
    with ChatServer(max_running_requests=1, max_queued_requests=1) as server, client_of(server) as client:
        server.scheduler.hold_after = 1
        endless = {"model": "x", "max_tokens": 50, "messages": [{"role": "user", "content": "FOREVER"}], "stream": True}
        streams = [client.messages.create(**endless) for _ in range(2)]
        assert [next(stream).type for stream in streams] == ["message_start"] * 2
        with pytest.raises(anthropic.APIStatusError) as caught:
            client.messages.create(model="x", max_tokens=5, messages=USER)
        assert (caught.value.status_code, caught.value.body["error"]["type"]) == (503, "overloaded_error")
        for stream in streams:
            stream.close()
