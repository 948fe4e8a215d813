"""Tool calls over /v1/chat/completions, with the official client."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import requests

from fakes.byte_tokenizer import ByteTokenizer
from fakes.chat_server import ChatServer
from fakes.format_outputs import BROKEN, SCHEMAS, WHOLE, Case
from sgl_runtime.server.chat.chat_call import ChatCall, FunctionTool
from sgl_runtime.server.chat.tool_plan import plan_tools

USER = [{"role": "user", "content": "hi"}]
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "does it", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
PARIS = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
SUM = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(tool_call_parser="hermes") as server:
        yield server


@pytest.fixture
def client(server: ChatServer) -> Iterator[Any]:
    with client_of(server) as client:
        yield client


def client_of(server: ChatServer) -> Any:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=20)


def folded(chunks: Any) -> dict[int, dict[str, Any]]:
    """Choices put together as a client does it."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            seen = choices.setdefault(choice.index, {"content": "", "reasoning": "", "calls": [], "finish": None})
            assert seen["finish"] is None, "nothing comes behind the end"
            assert (choice.delta.role == "assistant") == (not seen.get("begun"))
            seen["begun"] = True
            seen["content"] += choice.delta.content or ""
            seen["reasoning"] += (choice.delta.model_extra or {}).get("reasoning_content", "")
            for call in choice.delta.tool_calls or ():
                if call.id is not None:
                    assert call.index == len(seen["calls"])
                    assert (call.type, call.function.arguments) == ("function", "")
                    seen["calls"].append([call.function.name, ""])
                else:
                    seen["calls"][call.index][1] += call.function.arguments
            seen["finish"] = choice.finish_reason
    return choices


def whole(reply: Any) -> dict[int, dict[str, Any]]:
    return {
        choice.index: {
            "content": choice.message.content or "",
            "reasoning": (choice.message.model_extra or {}).get("reasoning_content", ""),
            "calls": [[call.function.name, call.function.arguments] for call in choice.message.tool_calls or ()],
            "finish": choice.finish_reason,
            "begun": True,
        }
        for choice in reply.choices
    }


def both(client: Any, **options: Any) -> dict[str, Any]:
    """The one choice of the whole reply, which is that of the stream."""
    body = {"model": "scripted", "messages": USER, **options}
    reply = whole(client.chat.completions.create(**body))
    assert folded(client.chat.completions.create(**body, stream=True)) == reply
    return reply[0]


@pytest.mark.parametrize("name", sorted({case.format for case in WHOLE}))
def test_streams_and_whole_replies_agree_in_every_format(name: str) -> None:
    cases = [case for case in WHOLE if case.format == name]
    cases += [Case(name, text, content=text) for text in BROKEN.get(name, [])]
    with ChatServer(tool_call_parser=name) as server, client_of(server) as client:
        for case in cases:
            server.say(case.text)
            choice = both(client, tools=TOOLS)
            assert [(name, json.loads(arguments)) for name, arguments in choice["calls"]] == list(case.calls)
            assert (choice["content"], choice["reasoning"]) == (case.content, case.reasoning)
            assert choice["finish"] == ("tool_calls" if case.calls else "stop")


def test_a_reply_with_calls_alone_has_no_content(client: Any, server: ChatServer) -> None:
    server.say(PARIS + "\n" + SUM)
    message = client.chat.completions.create(model="x", messages=USER, tools=TOOLS).choices[0].message
    assert message.content is None
    assert len({call.id for call in message.tool_calls}) == 2
    assert all(call.id.startswith("call_") and len(call.id) == 29 for call in message.tool_calls)


def test_choice_none_calls_nothing(client: Any, server: ChatServer) -> None:
    server.say(PARIS)
    choice = both(client, tools=TOOLS, tool_choice="none")
    assert (choice["content"], choice["calls"], choice["finish"]) == (PARIS, [], "stop")
    assert "tools" not in server.template.rendered[-1][1]
    assert both(client, tool_choice="none")["calls"] == []


def test_the_template_is_shown_the_tools(client: Any, server: ChatServer) -> None:
    server.say("ok")
    both(client, tools=TOOLS)
    assert server.template.rendered[-1][1]["tools"] == TOOLS
    assert server.scheduler.requests[-1].sampling.grammar_kind is None


def test_a_cut_call_ends_by_length(client: Any, server: ChatServer) -> None:
    server.say(PARIS)
    choice = both(client, tools=TOOLS, max_tokens=40)
    assert (choice["content"], choice["calls"], choice["finish"]) == (PARIS[:40], [], "length")


def test_required_and_named_choices_are_enforced(client: Any, server: ChatServer) -> None:
    server.say('[{"name": "add", "parameters": {"a": 1}}, {"name": "now", "parameters": {}}]')
    choice = both(client, tools=TOOLS, tool_choice="required")
    assert choice["calls"] == [["add", '{"a": 1}'], ["now", "{}"]]
    assert (choice["content"], choice["finish"]) == ("", "tool_calls")
    schema = json.loads(server.scheduler.requests[-1].sampling.json_schema)
    assert schema["minItems"] == 1
    assert "maxItems" not in schema
    names = [each["properties"]["name"]["const"] for each in schema["items"]["anyOf"]]
    assert names == list(SCHEMAS)
    both(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert json.loads(server.scheduler.requests[-1].sampling.json_schema)["maxItems"] == 1
    server.say('[{"name": "add", "parameters": {"a": 1}}]')
    both(client, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "add"}})
    schema = json.loads(server.scheduler.requests[-1].sampling.json_schema)
    assert schema["maxItems"] == 1
    assert [each["properties"]["name"]["const"] for each in schema["items"]["anyOf"]] == ["add"]


def test_a_constraint_of_the_answer_gives_way_to_a_required_call(client: Any, server: ChatServer) -> None:
    server.say('[{"name": "now", "parameters": {}}]')
    options = {"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}}
    assert both(client, **options)["calls"] == [["now", "{}"]]


def test_allowed_tools_limit_what_may_be_called(client: Any, server: ChatServer) -> None:
    server.say(PARIS + SUM)
    listed = [{"type": "function", "function": {"name": "add"}}]
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": listed}}
    choice = both(client, tools=TOOLS, tool_choice=allowed)
    assert choice["calls"] == [["add", '{"a": 1}']]
    assert choice["content"] == PARIS
    assert server.template.rendered[-1][1]["tools"] == TOOLS


def test_parallel_calls_may_be_turned_off(client: Any, server: ChatServer) -> None:
    server.say(PARIS + SUM)
    assert [call[0] for call in both(client, tools=TOOLS)["calls"]] == ["get_weather", "add"]
    assert [call[0] for call in both(client, tools=TOOLS, parallel_tool_calls=False)["calls"]] == ["get_weather"]


def test_strict_functions_are_enforced_in_the_models_own_format(client: Any, server: ChatServer) -> None:
    server.say(PARIS)
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}, TOOLS[2]]
    assert both(client, tools=strict)["calls"] == [["get_weather", '{"city": "Paris"}']]
    tag = json.loads(server.scheduler.requests[-1].sampling.structural_tag)
    assert tag["triggers"] == ["<tool_call>"]
    assert tag["structures"][0] == {
        "begin": '<tool_call>\n{"name": "get_weather", "arguments": ',
        "schema": SCHEMAS["get_weather"],
        "end": "}\n</tool_call>",
    }
    assert tag["structures"][1]["schema"] == {"type": "object"}
    assert "strict" not in server.template.rendered[-1][1]["tools"][0]["function"]


def test_an_answer_of_a_schema_leaves_calls_free(client: Any, server: ChatServer) -> None:
    server.say('{"x": 1}')
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    choice = both(client, tools=TOOLS, response_format=form)
    assert (choice["content"], choice["calls"]) == ('{"x": 1}', [])
    sampling = server.scheduler.requests[-1].sampling
    assert sampling.json_schema is None
    assert "answer: %json" in sampling.ebnf
    server.say(PARIS)
    assert both(client, tools=TOOLS, response_format=form)["finish"] == "tool_calls"


class TagTokenizer(ByteTokenizer):
    """Has Llama's mark of a call as a special token."""

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        return super().encode(text.replace("<|python_tag|>", "<turn>"), add_bos=add_bos)


def test_marks_that_are_special_tokens_are_shown_to_the_parser() -> None:
    server = ChatServer(tool_call_parser="llama3")
    server.tokenizer = TagTokenizer()
    server.tokenizer.chat_template = server.template
    with server, client_of(server) as client:
        server.say("hi")
        both(client, tools=TOOLS)
        assert not server.scheduler.requests[-1].sampling.skip_special_tokens
        both(client, tools=TOOLS, tool_choice="none")
        assert server.scheduler.requests[-1].sampling.skip_special_tokens


def test_channels_end_with_a_call() -> None:
    with ChatServer(tool_call_parser="gpt-oss") as server, client_of(server) as client:
        server.say("hi")
        both(client, tools=TOOLS, stop=["x"])
        assert server.scheduler.requests[-1].sampling.stop == ("x", "<|call|>")


def test_strict_functions_in_marks_that_no_grammar_writes_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    tool = FunctionTool(name="f", definition={"name": "f"}, parameters={}, strict=True)
    call = ChatCall(messages=[], tools=(tool,), sampling={})
    plan = plan_tools(call, parser="mistral", is_special=lambda text: "[TOOL_CALLS]" in text)
    assert plan.constraint == {}
    assert "strict functions are not enforced" in caplog.text
    assert "structural_tag" in plan_tools(call, parser="mistral", is_special=lambda text: False).constraint
    assert plan_tools(call, parser="pythonic", is_special=lambda text: False).constraint == {}


def test_several_choices_have_their_own_calls(client: Any, server: ChatServer) -> None:
    answers = {0: PARIS, 1: "none needed", 2: SUM}
    server.say(lambda message: answers[int(message.rid.partition("-")[2] or 0)])
    body = {"model": "x", "messages": USER, "tools": TOOLS, "n": 3}
    choices = whole(client.chat.completions.create(**body))
    assert folded(client.chat.completions.create(**body, stream=True)) == choices
    assert [choices[index]["finish"] for index in range(3)] == ["tool_calls", "stop", "tool_calls"]
    assert [call[0] for index in range(3) for call in choices[index]["calls"]] == ["get_weather", "add"]


def test_history_with_calls_reaches_the_template(client: Any, server: ChatServer) -> None:
    server.say("It is warm.")
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "20 degrees"}]},
    ]
    assert both(client, messages=messages, tools=TOOLS)["content"] == "It is warm."
    _, assistant, tool = server.template.rendered[-1][0]
    assert assistant["content"] == ""
    assert assistant["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}
    assert tool == {"role": "tool", "tool_call_id": "call_1", "content": "20 degrees"}


def test_without_a_known_format_a_free_choice_is_refused() -> None:
    with ChatServer("tools") as server, client_of(server) as client:
        with pytest.raises(openai.BadRequestError, match="--tool-call-parser") as caught:
            client.chat.completions.create(model="x", messages=USER, tools=TOOLS)
        assert caught.value.param == "tools"
        # A forced one needs no format of the model.
        server.say('[{"name": "now", "parameters": {}}]')
        assert both(client, tools=TOOLS, tool_choice="required")["calls"] == [["now", "{}"]]


def test_the_format_is_found_in_the_template() -> None:
    with ChatServer("tools within <tool_call></tool_call>") as server, client_of(server) as client:
        server.say(PARIS)
        assert both(client, tools=TOOLS)["finish"] == "tool_calls"
        assert requests.get(server.url + "/get_model_info", timeout=20).json()["tool_call_parser"] == "hermes"


def test_a_template_without_tools_is_told_of_them_in_text() -> None:
    with ChatServer("plain", tool_call_parser="hermes") as server, client_of(server) as client:
        server.say(PARIS)
        assert both(client, tools=TOOLS)["finish"] == "tool_calls"
        system, user = server.template.rendered[-1][0]
        assert system["role"] == "system"
        assert '"name": "get_weather"' in system["content"]
        assert "<tool_call>" in system["content"]
        assert user == USER[0]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": 5}, "tools", "a list"),
    ({"tools": [5]}, "tools[0]", "an object"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "runs no tools of its own"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "with a name"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "letters"),
    ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].function.name", "another function"),
    (
        {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]},
        "tools[0].function.parameters",
        "as an object",
    ),
    ({"tools": [{"type": "function", "function": {"name": "a", "strict": 1}}]}, "tools[0].function.strict", "true or"),
    ({"tool_choice": "required"}, "tool_choice", "without tools"),
    ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice", '"none"'),
    ({"tools": TOOLS, "tool_choice": {"type": "custom"}}, "tool_choice.type", "allowed_tools"),
    (
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "b"}}},
        "tool_choice.function.name",
        "get_weather",
    ),
    ({"tools": TOOLS, "parallel_tool_calls": "no"}, "parallel_tool_calls", "true or false"),
    ({"functions": []}, "functions", "give tools instead"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]},
        "messages[0].tool_calls[0]",
        '"function"',
    ),
    ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content", "a string"),
]


@pytest.mark.parametrize(("body", "param", "message"), WRONG)
def test_wrong_tools_are_named(server: ChatServer, body: dict[str, Any], param: str, message: str) -> None:
    reply = requests.post(f"{server.url}/v1/chat/completions", json={"messages": USER, **body}, timeout=20)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert message in error["message"]
