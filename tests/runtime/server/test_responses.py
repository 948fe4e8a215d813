"""/v1/responses with the official client: whole replies, and streams that add up to the same."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest
import requests
from openai.types.responses import Response, ResponseStreamEvent

from fakes.chat_server import ChatServer, prompt_text

THOUGHT = "<think>\nHm, what?\n</think>\n\nIt is é."
PARIS = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "get_weather", "description": "does it", "parameters": {"type": "object"}},
    {"type": "function", "name": "now", "parameters": None},
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
EVENT: Any = pydantic.TypeAdapter(ResponseStreamEvent)


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(reasoning_parser="qwen3", tool_call_parser="hermes") as server:
        yield server


@pytest.fixture
def client(server: ChatServer) -> Iterator[Any]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=20) as client:
        yield client


def plain(value: Any) -> Any:
    """A response without what differs from one to the next: ids and times."""
    if isinstance(value, dict):
        left_out = ("id", "item_id", "call_id", "created_at", "completed_at")
        return {name: plain(content) for name, content in value.items() if name not in left_out}
    return list(map(plain, value)) if isinstance(value, list) else value


def folded(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The response that the events of a stream add up to; each of them is checked against the client's types."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    output: list[dict[str, Any]] = []
    for event in events:
        EVENT.validate_python(event)
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(output)
            output.append(json.loads(json.dumps(event["item"])))
            continue
        if "output_index" not in event:
            continue
        item = output[event["output_index"]]
        assert event.get("item_id", item["id"]) == item["id"]
        match kind:
            case "content_part.added":
                item["content"].append(dict(event["part"]))
            case "reasoning_summary_part.added":
                item["summary"].append(dict(event["part"]))
            case "output_text.delta":
                item["content"][event["content_index"]]["text"] += event["delta"]
                item["content"][event["content_index"]]["logprobs"] += event["logprobs"]
            case "reasoning_text.delta":
                item["content"][event["content_index"]]["text"] += event["delta"]
            case "reasoning_summary_text.delta":
                item["summary"][event["summary_index"]]["text"] += event["delta"]
            case "function_call_arguments.delta":
                item["arguments"] += event["delta"]
            case "output_item.done":
                assert {**item, "status": event["item"]["status"]} == event["item"]
                item["status"] = event["item"]["status"]
            case "function_call_arguments.done":
                assert event["arguments"] == item["arguments"]
            case "content_part.done":
                assert event["part"] == item["content"][event["content_index"]]
            case "output_text.done":
                assert event["text"] == item["content"][event["content_index"]]["text"]
    last = events[-1]["response"]
    assert events[-1]["type"] == f"response.{last['status']}"
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert output == last["output"]
    return last


def stream_events(server: ChatServer, body: dict[str, Any]) -> list[dict[str, Any]]:
    text = requests.post(f"{server.url}/v1/responses", json={**body, "stream": True}, timeout=20).text
    events = []
    for chunk in text.strip().split("\n\n"):
        name, data = chunk.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def both(server: ChatServer, **options: Any) -> dict[str, Any]:
    """The whole reply, which is that of the stream."""
    body = {"model": "x", "input": "hi", **options}
    reply: dict[str, Any] = requests.post(f"{server.url}/v1/responses", json=body, timeout=20).json()
    assert "output" in reply, reply
    Response.model_validate(reply)
    assert plain(folded(stream_events(server, body))) == plain(reply)
    return reply


def test_a_text(server: ChatServer, client: Any) -> None:
    server.say("It is é.")
    reply = both(server)
    assert [item["type"] for item in reply["output"]] == ["message"]
    assert (reply["status"], reply["error"], reply["incomplete_details"]) == ("completed", None, None)
    response = client.responses.create(model="x", input="hi")
    assert response.output_text == "It is é."
    assert response.usage.output_tokens == len("It is é.".encode()) + 1
    assert response.usage.input_tokens_details.cached_tokens == 3
    with client.responses.stream(model="x", input="hi") as stream:
        assert "".join(event.delta for event in stream if event.type == "response.output_text.delta") == "It is é."
        assert stream.get_final_response().output_text == "It is é."


def test_an_empty_answer_is_a_message(server: ChatServer) -> None:
    server.say("")
    assert both(server)["output"][0]["content"][0]["text"] == ""


def test_thinking_is_an_item(server: ChatServer) -> None:
    server.say(THOUGHT)
    reply = both(server)
    thinking, message = reply["output"]
    assert (thinking["type"], thinking["content"], thinking["summary"]) == (
        "reasoning", [{"type": "reasoning_text", "text": "Hm, what?"}], [],
    )  # fmt: skip
    assert message["content"][0]["text"] == "It is é."
    assert reply["usage"]["output_tokens_details"]["reasoning_tokens"] == len("<think>\nHm, what?\n</think>")
    shown = both(server, reasoning={"summary": "auto", "effort": "low"})["output"][0]
    assert (shown["summary"], "content" in shown) == ([{"type": "summary_text", "text": "Hm, what?"}], False)
    assert server.template.rendered[-1][1]["reasoning_effort"] == "low"


def test_calls_are_items(server: ChatServer, client: Any) -> None:
    server.say("I look.\n" + PARIS + PARIS)
    message, *calls = both(server, tools=TOOLS)["output"]
    assert message["content"][0]["text"] == "I look."
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [("get_weather", {"city": "Paris"})] * 2
    assert len({call["call_id"] for call in calls} | {call["id"] for call in calls}) == 4
    with client.responses.stream(model="x", input="hi", tools=TOOLS) as stream:
        assert [item.type for item in stream.get_final_response().output] == [
            "message",
            "function_call",
            "function_call",
        ]
    assert len(both(server, tools=TOOLS, parallel_tool_calls=False)["output"]) == 2


def test_choices_of_tools(server: ChatServer) -> None:
    server.say('[{"name": "now", "parameters": {}}]')
    forced: list[Any] = [
        "required",
        {"type": "function", "name": "now"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "now"}]},
    ]
    for choice in forced:
        server.say(
            lambda message: '[{"name": "now", "parameters": {}}]' if message.sampling.json_schema else "go</think>"
        )
        thinking, call = both(server, tools=TOOLS, tool_choice=choice)["output"]
        assert (thinking["content"][0]["text"], call["name"], call["arguments"]) == ("go", "now", "{}")
    server.say(PARIS)
    assert both(server, tools=TOOLS, tool_choice="none")["output"][0]["content"][0]["text"] == PARIS
    assert server.template.rendered[-1][1].get("tools") is None


def test_a_schema(server: ChatServer, client: Any) -> None:
    class Answer(pydantic.BaseModel):
        a: int

    server.say(lambda message: '{"a": 1}' if message.sampling.json_schema else "go</think>")
    text = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}
    assert both(server, text=text)["output"][1]["content"][0]["text"] == '{"a": 1}'
    assert json.loads(server.scheduler.requests[-1].sampling.json_schema) == SCHEMA
    assert both(server, text={"format": {"type": "json_object"}})["text"]["format"] == {"type": "json_object"}
    assert client.responses.parse(model="x", input="hi", text_format=Answer).output_parsed == Answer(a=1)
    with client.responses.stream(model="x", input="hi", text_format=Answer) as stream:
        assert stream.get_final_response().output_parsed == Answer(a=1)


def test_an_answer_that_the_limit_cuts_is_incomplete(server: ChatServer) -> None:
    server.say("one two three")
    reply = both(server, max_output_tokens=5)
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (reply["output"][0]["status"], reply["output"][0]["content"][0]["text"]) == ("incomplete", "one t")
    server.say(THOUGHT)
    reply = both(server, max_output_tokens=10)
    assert [(item["type"], item["status"]) for item in reply["output"]] == [("reasoning", "incomplete")]


def test_log_probabilities_go_with_the_message(server: ChatServer) -> None:
    options = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}

    def tokens(text: str, **more: Any) -> list[str]:
        server.say(text)
        reply = both(server, **options, **more)
        message = next(item for item in reply["output"] if item["type"] == "message")
        entries = message["content"][0]["logprobs"]
        assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
        return [entry["token"] for entry in entries]

    assert tokens("yes") == ["y", "e", "s", "</s>"]
    assert tokens("<think>k</think>\n\nk") == ["k", "</s>"]
    assert tokens("See.\n" + PARIS, tools=TOOLS) == list("See.")
    assert tokens("<think>so</think>See.\n" + PARIS, tools=TOOLS) == list("See.")


def test_settings_reach_the_request(server: ChatServer) -> None:
    server.say("ok")
    reply = both(
        server,
        instructions="be kind",
        input=[{"role": "developer", "content": "short"}, {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.5,
        metadata={"a": "b"},
        text={"verbosity": "low"},
        truncation="disabled",
        user="u",
        safety_identifier="s",
        prompt_cache_key="k",
        service_tier="auto",
        store=False,
        max_tool_calls=3,
        include=["reasoning.encrypted_content"],
        top_k=3,
        seed=5,
        stop=["zz"],
        chat_template_kwargs={"x": 1},
    )  # fmt: skip
    sampling = server.scheduler.requests[-1].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.sampling_seed) == (0.5, 0.5, 3, 5)
    assert (sampling.max_new_tokens, sampling.stop) == (9, ("zz",))
    messages, variables = server.template.rendered[-1]
    assert [(message["role"], message["content"]) for message in messages] == [
        ("system", "be kind"), ("system", "short"), ("user", "hi"),
    ]  # fmt: skip
    assert variables["x"] == 1
    repeated = ("instructions", "max_output_tokens", "temperature", "metadata", "user", "store", "max_tool_calls")
    assert [reply[name] for name in repeated] == ["be kind", 9, 0.5, {"a": "b"}, "u", False, 3]


def test_items_of_a_conversation_become_messages(server: ChatServer) -> None:
    server.say("ok")
    call = {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}"}
    items = [
        {"role": "user", "content": "one"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "let me see", "annotations": []}]},
        call,
        {**call, "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "now I know"}]},
        {"role": "assistant", "content": "done"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "user", "content": "two"},
    ]  # fmt: skip
    both(server, input=items, tools=TOOLS)
    function = {"name": "now", "arguments": {}}
    assert server.template.rendered[-1][0] == [
        {"role": "user", "content": "one"},
        {
            "role": "assistant",
            "content": "let me see",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": function},
                {"id": "c2", "type": "function", "function": function},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {"role": "assistant", "content": "done", "reasoning_content": "now I know"},
        {"role": "assistant", "content": "no"},
        {"role": "user", "content": "two"},
    ]


def test_the_length_of_a_prompt(server: ChatServer, client: Any) -> None:
    server.say("ok")
    count = client.responses.input_tokens.count(model="x", input="hi").input_tokens
    assert count == client.responses.create(model="x", input="hi").usage.input_tokens
    assert prompt_text(server.scheduler.requests[-1]).endswith("<turn>assistant\n")


MANY = {f"name{number}": "x" for number in range(17)}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "call_id": "x"}]}, "input[0].name"),
        ({"input": [{"type": "function_call_output", "call_id": "x"}]}, "input[0].output"),
        ({"input": [{"type": "reasoning", "content": 5}]}, "input[0].content"),
        ({"input": [{"type": "reasoning", "content": [{}]}]}, "input[0].content[0].text"),
        ({"conversation": "x"}, "conversation"),
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"max_output_tokens": 0.5}, "max_output_tokens"),
        ({"max_output_tokens": 100_000}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].name"),
        ({"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": 5}}, "tool_choice.mode"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "tools": [{}]}}, "tool_choice.tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"text": {"verbosity": "none"}}, "text.verbosity"),
        ({"text": {"format": {"type": "json_object"}}, "regex": "a"}, "regex"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "huge"}}, "reasoning.summary"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"include": "x"}, "include"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"metadata": MANY}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"metadata": {"a": 5}}, "metadata.a"),
        ({"truncation": "some"}, "truncation"),
        ({"background": True, "store": False}, "store"),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
        ({"instruction": "x"}, "instruction"),
        ({"n": 2}, "n"),
        ({"max_tool_calls": -1}, "max_tool_calls"),
        ({"stream_options": {}}, "stream_options"),
    ],
)
def test_what_is_wrong_is_named(server: ChatServer, body: dict[str, Any], param: str) -> None:
    server.say("x")
    for stream in (False, True):
        sent = {"model": "x", "input": "hi", "stream": stream, **body}
        if "stream_options" in body and stream:
            continue
        reply = requests.post(f"{server.url}/v1/responses", json=sent, timeout=20)
        error = reply.json()["error"]
        assert (reply.status_code, error["param"]) == (400, param), error
        assert param.rpartition(".")[2].split("[")[0] in error["message"] or "100000" in error["message"]
        assert "sampling_params" not in error["message"]


def test_what_fails_behind_the_thinking_ends_the_stream(server: ChatServer) -> None:
    server.say("go</think>")
    body = {"model": "x", "input": "hi", "regex": "("}
    error = requests.post(f"{server.url}/v1/responses", json=body, timeout=20).json()["error"]
    assert (error["code"], error["param"]) == ("bad_grammar", "regex")
    failed = folded(stream_events(server, body))
    assert (failed["status"], failed["error"]["code"]) == ("failed", "invalid_prompt")
    assert "unclosed group" in failed["error"]["message"]
    assert [(item["type"], item["status"]) for item in failed["output"]] == [("reasoning", "incomplete")]
    assert server.manager.num_live == 0
