"""Bugs that servers of this kind have had, where no other test would see them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from fakes.byte_tokenizer import VOCABULARY
from fakes.chat_server import ChatServer
from fakes.hashed_composition import HASHED
from sgl_runtime.detokenizer.detokenizer import Detokenizer
from sgl_runtime.engine import Engine
from sgl_runtime.ipc.messages import DetokenizeStart, FinishReason, TextDelta, TokenDelta

# Options of other servers, as their users know them.
_NAMES = (
    "temperature top_p top_k min_p frequency_penalty presence_penalty repetition_penalty seed logit_bias stop"
    " stop_token_ids ignore_eos min_tokens max_tokens max_completion_tokens n skip_special_tokens"
    " spaces_between_special_tokens echo stream_options stop_regex no_stop_trim regex ebnf json_schema structural_tag"
    " custom_logit_processor session_params lora_path extra_key cache_salt priority rid return_hidden_states"
    " return_cached_tokens_details token_ids_logprob logprob_start_len return_text_in_logprobs stream_interval"
    " separate_reasoning stream_reasoning chat_template_kwargs continue_final_message reasoning_effort best_of"
    " structured_outputs use_beam_search length_penalty bad_words allowed_token_ids include_stop_str_in_output"
    " prompt_logprobs logprob_token_ids truncate_prompt_tokens truncation_side return_token_ids"
    " return_tokens_as_token_ids prompt_embeds thinking_token_budget repetition_detection request_id"
    " kv_transfer_params add_generation_prompt documents"
)
OPTIONS = _NAMES.split()


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(tool_call_parser="hermes") as server:
        yield server


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/completions", {"prompt": "a"}),
    ],
)
def test_an_option_is_heeded_or_refused_by_name_and_never_overlooked(
    server: ChatServer, path: str, body: dict[str, Any]
) -> None:
    for name in OPTIONS:
        # No option takes a list of an object.
        wrong = requests.post(server.url + path, json={**body, "max_tokens": 2, name: [{}]}, timeout=20)
        if name == "documents" and path == "/v1/chat/completions":
            assert wrong.status_code == 200
            continue
        assert wrong.status_code == 400, (name, wrong.text)
        assert name in wrong.json()["error"]["message"], wrong.text
        assert wrong.json()["error"]["param"].startswith(name), wrong.text


def test_text_is_held_back_for_a_character_at_most_whatever_comes() -> None:
    """Output that ends in what looks like half of a character was once held back, and decoded again, without end."""
    piece = VOCABULARY.token_bytes.index(b"\xe2\x82")
    for ids in ([piece] * 3000, [0xF0, 0x9F] * 1500, [0xFF] * 3000, [0x80] * 3000):
        detokenizer = Detokenizer(VOCABULARY)
        detokenizer.accept(DetokenizeStart(rid="r"))
        num_shown = num_given = 0
        for position, token_id in enumerate(ids):
            finish = FinishReason(type="length") if position == len(ids) - 1 else None
            (delta,) = detokenizer.accept(TokenDelta(rid="r", new_ids=[token_id], finish=finish))
            assert isinstance(delta, TextDelta)
            # Each sign for what is no character stands for one to three bytes.
            num_shown += 3 * len(delta.text)
            num_given += len(VOCABULARY.token_bytes[token_id])
            assert num_given - num_shown <= 3, (ids[:2], position)
            assert len(delta.text) <= 4
        assert detokenizer.num_states == 0


async def streamed(engine: Engine, payload: dict[str, Any]) -> list[dict[str, Any]]:
    return [reply async for reply in engine.stream("/generate", payload)]


@pytest.mark.parametrize("stream", [False, True])
def test_the_prompt_of_several_outputs_counts_once(stream: bool) -> None:
    prompt = "a prompt of some length"
    with Engine("hashed", factories=HASHED) as engine:
        for is_again in (False, True):
            payload = {"text": prompt, "sampling_params": {"n": 4, "max_new_tokens": 3, "ignore_eos": True}}
            found = asyncio.run(streamed(engine, payload)) if stream else engine.call_and_wait("/generate", payload)
            replies = {reply["index"]: reply for reply in found}
            assert sorted(replies) == [0, 1, 2, 3]
            metas = [replies[index]["meta_info"] for index in range(4)]
            assert {meta["prompt_tokens"] for meta in metas} == {len(prompt) + 1}
            assert {meta["completion_tokens"] for meta in metas} == {3}
            # The last prompt token is always computed; the rest is computed once, by the first of them.
            cached = [meta["cached_tokens"] for meta in metas]
            assert sorted(cached)[1:] == [len(prompt)] * 3
            assert min(cached) == (len(prompt) if is_again else 0)
