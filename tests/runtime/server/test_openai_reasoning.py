"""Thinking in chat replies, with the official client."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
import requests

from fakes.chat_server import ChatServer, prompt_text
from sgl_runtime.ipc.messages import TokenizedRequest

USER = [{"role": "user", "content": "hi"}]
THOUGHT = "<think>\nHm, what?\n</think>\n\nIt is é."
JSON_FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}


def client_of(server: ChatServer) -> Any:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=20)


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(reasoning_parser="qwen3", tool_call_parser="hermes") as server:
        yield server


@pytest.fixture
def client(server: ChatServer) -> Iterator[Any]:
    with client_of(server) as client:
        yield client


def both(client: Any, **options: Any) -> tuple[str, str, str, int]:
    """Thinking, answer, finish reason and tokens of the thinking: of the whole reply, and of the stream."""
    body = {"model": "x", "messages": USER, **options}
    reply = client.chat.completions.create(**body)
    message = reply.choices[0].message
    result = (
        (message.model_extra or {}).get("reasoning_content", ""),
        message.content or "",
        reply.choices[0].finish_reason,
        reply.usage.completion_tokens_details.reasoning_tokens,
    )
    chunks = list(client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert (
        "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas),
        "".join(delta.content or "" for delta in deltas),
        chunks[-2].choices[0].finish_reason,
        chunks[-1].usage.completion_tokens_details.reasoning_tokens,
    ) == result
    assert chunks[-1].usage == reply.usage
    return result


def test_thinking_is_told_apart(client: Any, server: ChatServer) -> None:
    server.say(THOUGHT)
    assert both(client) == ("Hm, what?", "It is é.", "stop", len("<think>\nHm, what?\n</think>"))


def test_thinking_may_stay_in_the_answer(client: Any, server: ChatServer) -> None:
    server.say(THOUGHT)
    assert both(client, extra_body={"separate_reasoning": False}) == ("", THOUGHT, "stop", 0)


def test_a_stream_may_show_thinking_at_once(client: Any, server: ChatServer) -> None:
    server.say(THOUGHT)
    chunks = client.chat.completions.create(
        model="x", messages=USER, stream=True, extra_body={"stream_reasoning": False}
    )
    shown = [(chunk.choices[0].delta.model_extra or {}).get("reasoning_content") for chunk in chunks]
    assert [text for text in shown if text] == ["Hm, what?"]
    assert both(client, extra_body={"stream_reasoning": False})[0] == "Hm, what?"


def test_an_answer_without_thinking_is_an_answer(client: Any, server: ChatServer) -> None:
    server.say(" plain <think> text")
    assert both(client) == ("", " plain <think> text", "stop", 0)


def test_thinking_that_does_not_end(client: Any, server: ChatServer) -> None:
    server.say("<think>on and on")
    assert both(client) == ("on and on", "", "stop", len("<think>on and on"))
    assert both(client, max_tokens=10)[:3] == ("on", "", "length")


def test_a_prompt_that_opens_or_closes_the_thinking() -> None:
    with ChatServer(reasoning_parser="qwen3", opening="<turn>assistant\n<think>\n") as server:
        server.say("so\n</think>\n\nyes")
        with client_of(server) as client:
            assert both(client)[:2] == ("so", "yes")
    with ChatServer(reasoning_parser="qwen3", opening="<think>\n\n</think>\n\n") as server:
        server.say("a</think>b")
        with client_of(server) as client:
            assert both(client)[:2] == ("", "a</think>b")


def test_a_model_that_always_thinks_needs_no_mark() -> None:
    with ChatServer(reasoning_parser="deepseek-r1") as server, client_of(server) as client:
        server.say("so\n</think>\n\nyes")
        assert both(client)[:2] == ("so", "yes")
        server.say("<think>so\n</think>yes")
        assert both(client)[:2] == ("so", "yes")


def test_thinking_goes_on_in_a_continued_message(client: Any, server: ChatServer) -> None:
    options = {"extra_body": {"continue_final_message": True}}
    server.say(" more</think>yes")
    assert both(client, messages=[*USER, {"role": "assistant", "content": "<think>one"}], **options)[:2] == (
        "more",
        "yes",
    )
    server.say("<think>no thinking")
    assert both(client, messages=[*USER, {"role": "assistant", "content": "It is"}], **options)[:2] == (
        "",
        "<think>no thinking",
    )


def answer_in_two(message: TokenizedRequest) -> str:
    return '{"a": 1}' if message.sampling.grammar_kind else "let me see\n</think>ignored"


def test_a_constraint_holds_for_the_answer_alone(client: Any, server: ChatServer) -> None:
    server.say(answer_in_two)
    result = both(client, response_format=JSON_FORM, max_tokens=100)
    assert result == ("let me see", '{"a": 1}', "stop", len("let me see\n</think>"))
    thinking, answer = server.scheduler.requests[-2:]
    assert prompt_text(thinking).endswith("<turn>assistant\n<think>\n")
    assert (thinking.sampling.stop, thinking.sampling.grammar_kind) == (("</think>",), None)
    assert prompt_text(answer).endswith("<think>\nlet me see\n</think>\n\n")
    assert answer.sampling.max_new_tokens == 100 - len("let me see\n</think>")
    assert both(client, response_format=JSON_FORM, extra_body={"separate_reasoning": False})[1] == (
        '<think>\nlet me see\n</think>\n\n{"a": 1}'
    )


def test_the_limit_holds_for_thinking_and_answer_together(client: Any, server: ChatServer) -> None:
    server.say(answer_in_two)
    assert both(client, response_format=JSON_FORM, max_tokens=6) == ("let me", "", "length", 6)
    num_thinking = len("let me see\n</think>")
    assert both(client, response_format=JSON_FORM, max_tokens=num_thinking)[1:3] == ("", "length")
    assert both(client, response_format=JSON_FORM, max_tokens=num_thinking + 3)[1:3] == ('{"a', "length")


def test_thinking_that_ends_by_itself_is_closed(client: Any, server: ChatServer) -> None:
    server.say(lambda message: '{"a": 1}' if message.sampling.grammar_kind else "no mark")
    assert both(client, response_format=JSON_FORM)[:3] == ("no mark", '{"a": 1}', "stop")
    assert prompt_text(server.scheduler.requests[-1]).endswith("<think>\nno mark</think>\n\n")


def test_a_closed_thinking_lets_the_constraint_begin_at_once() -> None:
    with ChatServer(reasoning_parser="qwen3", opening="<think>\n\n</think>\n\n") as server, client_of(server) as client:
        server.say(answer_in_two)
        assert both(client, response_format=JSON_FORM)[:2] == ("", '{"a": 1}')
        assert len(server.scheduler.requests) == 2


def test_forced_calls_come_behind_the_thinking(client: Any, server: ChatServer) -> None:
    call = '[{"name": "now", "parameters": {}}]'
    server.say(lambda message: call if message.sampling.grammar_kind else "go</think>")
    tools = [{"type": "function", "function": {"name": "now"}}]
    body = {"model": "x", "messages": USER, "tools": tools, "tool_choice": "required", "n": 3}
    reply = client.chat.completions.create(**body)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    for choice in reply.choices:
        assert choice.message.reasoning_content == "go"
        assert [each.function.name for each in choice.message.tool_calls] == ["now"]
        assert choice.finish_reason == "tool_calls"
    chunks = list(client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}))
    assert {chunk.choices[0].index for chunk in chunks[:-1]} == {0, 1, 2}
    assert chunks[-1].usage == reply.usage
    assert reply.usage.completion_tokens == 3 * (len("go</think>") + len(call) + 1)
    assert reply.usage.completion_tokens_details.reasoning_tokens == 3 * len("go</think>")


def test_an_error_in_one_of_several_choices_ends_all(client: Any, server: ChatServer) -> None:
    server.say(lambda message: "x" if message.sampling.grammar_kind else "go</think>")
    with pytest.raises(openai.BadRequestError, match="unclosed group") as caught:
        client.chat.completions.create(model="x", messages=USER, n=2, extra_body={"regex": "("})
    assert caught.value.param == "regex"
    assert server.manager.num_live == 0


def test_marks_of_channels_come_before_a_constraint() -> None:
    with ChatServer(reasoning_parser="gpt-oss", opening="<|start|>assistant") as server, client_of(server) as client:
        server.say(lambda message: '{"a": 1}' if message.sampling.grammar_kind else "hm<|end|>rest")
        assert both(client, response_format=JSON_FORM)[:2] == ("hm", '{"a": 1}')
        assert prompt_text(server.scheduler.requests[-1]).endswith(
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>"
        )
        server.say("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes")
        assert both(client)[:2] == ("hm", "yes")
        assert both(client, extra_body={"separate_reasoning": False})[:2] == ("", "hmyes")


def test_thinking_and_calls_in_one_reply(client: Any, server: ChatServer) -> None:
    server.say('<think>now?</think>\n<tool_call>{"name": "now"}</tool_call>')
    tools = [{"type": "function", "function": {"name": "now"}}]
    assert both(client, tools=tools)[:3] == ("now?", "", "tool_calls")


def test_effort_and_variables_reach_the_template(client: Any, server: ChatServer) -> None:
    server.say("ok")
    both(client, reasoning_effort="none", extra_body={"chat_template_kwargs": {"thinking": True, "x": [1]}})
    variables = server.template.rendered[-1][1]
    assert variables == {
        "add_generation_prompt": True,
        "reasoning_effort": "none",
        "enable_thinking": False,
        "thinking": True,
        "x": [1],
    }
    for body, param in (
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"chat_template_kwargs": 5}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"chat_template": "{{ x }}"}}, "chat_template_kwargs.chat_template"),
    ):
        reply = requests.post(f"{server.url}/v1/chat/completions", json={"messages": USER, **body}, timeout=20)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_log_probabilities_cover_all_tokens(client: Any, server: ChatServer) -> None:
    server.say(THOUGHT)
    body = {"model": "x", "messages": USER, "logprobs": True, "top_logprobs": 1}
    entries = client.chat.completions.create(**body).choices[0].logprobs.content
    assert [entry.token for entry in entries][:3] == ["<", "t", "h"]
    assert len(entries) == len(THOUGHT.encode()) + 1
    chunks = client.chat.completions.create(**body, stream=True)
    assert [entry for chunk in chunks for entry in chunk.choices[0].logprobs.content] == entries
