"""ResponseWriter and AnthropicWriter: however a reply falls into steps, it comes to the same."""

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.byte_tokenizer import EOS_ID, VOCABULARY
from sgl_runtime.ipc.messages import FinishReason
from sgl_runtime.server.anthropic_writer import AnthropicWriter
from sgl_runtime.server.chat.chat_reply import ChatFinish, ChatStep, ChatUsage
from sgl_runtime.server.chat.reply_parser import reply_parser
from sgl_runtime.server.chat.thinking import Thinking
from sgl_runtime.server.chat.tool_plan import ToolPlan
from sgl_runtime.server.openai_reply import ChatShape
from sgl_runtime.server.pending_reply import Update
from sgl_runtime.server.reasoning_parsers import REASONING_PARSERS, reasoning_style
from sgl_runtime.server.responses_writer import ResponseWriter
from sgl_runtime.server.tool_parsers.events import CallBegin
from sgl_runtime.server.tool_parsers.table import tool_format

CALL = '<tool_call>{"name": "now", "arguments": {"k": "k"}}</tool_call>'
REPLIES = [
    "plain k",
    "",
    "<think>k</think>k",
    f"k\n{CALL}",
    f"<think>so k</think>See k.\n{CALL}{CALL}",
    f"{CALL} and k",
    "<think>never ends",
]
USAGE = ChatUsage(prompt_tokens=5, completion_tokens=7, cached_tokens=3, reasoning_tokens=1)


def steps_of(reply: str, cuts: list[int]) -> list[ChatStep]:
    """The steps of a reply of one byte a token, cut at some of its tokens."""
    plan = ToolPlan(format=tool_format("hermes"), schemas={"now": {}})
    style = reasoning_style(REASONING_PARSERS["qwen3"])
    parser = reply_parser(plan, style=style, thinking=Thinking.MAY_BEGIN, channels=None)
    ids = [*reply.encode(), EOS_ID]
    edges = sorted({0, len(ids), *(cut % len(ids) for cut in cuts)})
    steps = []
    for begin, end in itertools.pairwise(edges):
        is_last = end == len(ids)
        text = reply.encode()[begin:end].decode()
        events = parser.feed(text) + (parser.finish() if is_last else [])
        for place, event in enumerate(events):
            if isinstance(event, CallBegin):
                events[place] = CallBegin(event.index, f"call_{event.index}", event.name)
        finish = ChatFinish(reason="stop", matched=None) if is_last else None
        told = FinishReason(type="stop") if is_last else None
        update = Update(text, ids[begin:end], [-0.5] * (end - begin), [None] * (end - begin), told)
        steps.append(ChatStep(index=0, events=events, tokens=update, finish=finish, usage=USAGE))
    return steps


def response(steps: list[ChatStep]) -> tuple[dict[str, Any], list[list[str]]]:
    """A response, and for each of its messages the tokens that its deltas brought."""
    shape = ChatShape(VOCABULARY, logprobs=True, num_top=0)
    writer = ResponseWriter({"id": "resp_x"}, token_entries=shape.token_entries, summarizes=False)
    events = [*writer.begin(), *(event for step in steps for event in writer.take(step))]
    tokens: dict[int, list[str]] = {}
    for event in events:
        if event["type"] == "response.output_text.delta":
            tokens.setdefault(event["output_index"], []).extend(entry["token"] for entry in event["logprobs"])
    return {**writer.response(), "completed_at": None}, list(tokens.values())


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.sampled_from(REPLIES), st.lists(st.integers(0, 200), max_size=40))
def test_steps_do_not_matter(reply: str, cuts: list[int]) -> None:
    whole, _ = response(steps_of(reply, []))
    found, tokens = response(steps_of(reply, cuts))
    assert found == whole
    messages = [item["content"][0] for item in found["output"] if item["type"] == "message"]
    assert [[entry["token"] for entry in part["logprobs"]] for part in messages if part["text"]] == [
        shown for shown, part in zip(tokens, messages, strict=False) if part["text"]
    ]
    for part in messages:
        assert (
            "".join(entry["token"] for entry in part["logprobs"]).removesuffix("</s>").strip() == part["text"].strip()
        )

    def message(steps: list[ChatStep]) -> dict[str, Any]:
        writer = AnthropicWriter("msg_x", model="m", stop_sequences=(), max_tokens=9, shows_thinking=True)
        for step in steps:
            writer.take(step)
        return writer.message()

    assert message(steps_of(reply, cuts)) == message(steps_of(reply, []))
