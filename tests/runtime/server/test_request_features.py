"""What requests may ask for besides text, through a whole Engine: sessions, pauses, hidden states, processors, logs."""

import asyncio
import logging
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.byte_tokenizer import BOS_ID
from fakes.hashed_composition import CONTEXT_LENGTH, HASHED, NUM_DRAWN
from fakes.scripted_executor import logprob_of, next_token
from sgl_runtime.engine import Engine
from sgl_runtime.errors import ConfigError, ContextLengthError, InvalidRequestError, OverloadedError


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    flags = {"enable_return_hidden_states": True, "custom_logit_processor": "some=a:b,fail=a:b", "max_sessions": 3}
    with Engine("hashed", factories=HASHED, **flags) as engine:
        yield engine


def continuation(ids: list[int], count: int) -> list[int]:
    out: list[int] = []
    for _ in range(count):
        out.append(next_token(ids + out, NUM_DRAWN))
    return out


def generate(engine: Engine, prompt: str | None, max_new: int = 4, **fields: Any) -> Any:
    sampling = {"temperature": 0, "max_new_tokens": max_new, **fields.pop("sampling", {})}
    return engine.generate(prompt, sampling, **fields)


def open_session(engine: Engine, **fields: Any) -> str:
    session_id = engine.call_and_wait("/open_session", {"capacity_of_str_len": 1000, **fields})
    assert isinstance(session_id, str)
    return session_id


def test_turns_of_a_session_count_and_score_their_whole_prompt(engine: Engine) -> None:
    session_id = open_session(engine)
    first = generate(engine, "hello", session_params={"id": session_id})
    ids = [BOS_ID, *b"hello", *first["output_ids"], *b" and"]
    assert first["output_ids"] == continuation(ids[:6], 4)
    turn = {"id": session_id, "rid": first["meta_info"]["id"]}
    second = generate(engine, " and", session_params=turn, return_logprob=True, logprob_start_len=8)
    assert second["output_ids"] == continuation(ids, 4)
    meta = second["meta_info"]
    assert meta["prompt_tokens"] == len(ids)
    assert [entry[:2] for entry in meta["input_token_logprobs"]] == [
        [logprob_of(ids[:place], ids[place]), ids[place]] for place in range(8, len(ids))
    ]
    assert engine.call_and_wait("/close_session", {"session_id": session_id})["success"]
    with pytest.raises(InvalidRequestError, match="there is no open session"):
        engine.call_and_wait("/close_session", {"session_id": session_id})


def test_a_viewer_follows_the_prefix_cache_by_its_events() -> None:
    with Engine("hashed", factories=HASHED, kv_events=True) as engine:
        reply = generate(engine, "hello")
        page = engine.call_and_wait("/kv_events", {})
        stored = [event for event in page["events"] if event["kind"] == "stored"]
        seen = [token for event in stored for token in event["token_ids"]]
        assert seen == [BOS_ID, *b"hello", *reply["output_ids"][:-1]]
        assert page["next"] == page["events"][-1]["number"] + 1
        assert engine.call_and_wait("/kv_events", {"since": page["next"]}) == {"events": [], "next": page["next"]}
        engine.flush_cache()
        (cleared,) = engine.call_and_wait("/kv_events", {"since": page["next"], "limit": 5})["events"]
        assert cleared["kind"] == "cleared"


def test_events_that_are_not_kept_are_an_error(engine: Engine) -> None:
    with pytest.raises(InvalidRequestError, match="--kv-events"):
        engine.call_and_wait("/kv_events")


def test_a_turn_needs_no_text_of_its_own(engine: Engine) -> None:
    session_id = open_session(engine)
    first = generate(engine, "hello", session_params={"id": session_id})
    again = {"id": session_id, "drop_previous_output": True}
    second = engine.generate(
        input_ids=[], sampling_params={"temperature": 0, "max_new_tokens": 4}, session_params=again
    )
    assert second["output_ids"] == first["output_ids"]
    engine.call_and_wait("/close_session", {"session_id": session_id})


def test_a_stream_of_a_turn_begins_with_its_first_token(engine: Engine) -> None:
    session_id = open_session(engine)
    for _ in range(2):
        replies = list(generate(engine, "ab", stream=True, session_params={"id": session_id}))
        assert [len(reply["output_ids"]) for reply in replies][-1] == 4
        assert all(reply["output_ids"] for reply in replies)
    engine.call_and_wait("/close_session", {"session_id": session_id})


@pytest.mark.parametrize(
    ("params", "param", "message"),
    [
        ({}, "session_params.id", "session_params.id is missing"),
        ({"id": "none"}, "session_params.id", "there is no open session of this id"),
        ({"id": "s", "rid": "none"}, "session_params.rid", "the session has no such turn"),
        ({"id": "s", "offset": 1.5}, "session_params.offset", "session_params.offset is 1.5"),
        ({"id": "s", "replace": 1}, "session_params.replace", "must be true or false"),
        ({"id": "s", "branch": 1}, "session_params.branch", "is not a known field"),
        (3, "session_params", "session_params is a number"),
    ],
)
def test_what_is_wrong_with_a_turn_is_named(engine: Engine, params: Any, param: str, message: str) -> None:
    open_session(engine, session_id="s")
    with pytest.raises(InvalidRequestError, match=re.escape(message)) as caught:
        generate(engine, "a", session_params=params)
    assert caught.value.param == param
    engine.call_and_wait("/close_session", {"session_id": "s"})


def test_a_turn_has_one_output(engine: Engine) -> None:
    session_id = open_session(engine)
    with pytest.raises(InvalidRequestError, match="a turn of a session has one output"):
        generate(engine, "a", sampling={"n": 2}, session_params={"id": session_id})
    engine.call_and_wait("/close_session", {"session_id": session_id})


def test_a_turn_that_does_not_fit_is_told_both_numbers(engine: Engine) -> None:
    session_id = open_session(engine)
    generate(engine, "a" * 150, session_params={"id": session_id})
    with pytest.raises(ContextLengthError, match=rf"the prompt has 200 tokens.*holds {CONTEXT_LENGTH}"):
        generate(engine, "b" * 45, session_params={"id": session_id})
    reply = generate(engine, "b" * 44, session_params={"id": session_id})
    assert len(reply["output_ids"]) == 1
    engine.call_and_wait("/close_session", {"session_id": session_id})


def test_sessions_are_bounded_and_their_ids_are_distinct(engine: Engine) -> None:
    ids = [open_session(engine) for _ in range(2)] + [open_session(engine, session_id="mine", timeout=5)]
    with pytest.raises(InvalidRequestError, match="belongs to an open session"):
        open_session(engine, session_id="mine")
    with pytest.raises(OverloadedError, match="3 sessions are open; the server takes 3"):
        open_session(engine)
    for session_id in ids:
        engine.call_and_wait("/close_session", {"session_id": session_id})


def test_callers_get_each_the_answer_to_their_own_question(engine: Engine) -> None:
    async def test() -> None:
        names = ["a", "b", "a"]
        calls = [engine.call("/open_session", {"capacity_of_str_len": 9, "session_id": name}) for name in names]
        replies = await asyncio.gather(*calls, return_exceptions=True)
        assert replies[:2] == ["a", "b"]
        assert isinstance(replies[2], InvalidRequestError)
        closed = await asyncio.gather(*(engine.call("/close_session", {"session_id": name}) for name in "ab"))
        assert all(reply["success"] for reply in closed)

    asyncio.run(asyncio.wait_for(test(), 20))
    with pytest.raises(InvalidRequestError, match="at most 256 characters"):
        open_session(engine, session_id="x" * 257)


@pytest.mark.parametrize("state", ["running", "in pieces", "paused"])
def test_who_leaves_leaves_nothing_behind(state: str) -> None:
    async def test(engine: Engine) -> None:
        prompt = "p" * (150 if state == "in pieces" else 5)
        request = {"text": prompt, "sampling_params": {"n": 6, "max_new_tokens": 45}, "return_logprob": True}
        if state == "paused":
            await engine.call("/pause_generation", {"mode": "in_place"})
        call = asyncio.ensure_future(engine.call("/generate", request))
        while not await busy(engine):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while await busy(engine):
            await asyncio.sleep(0)
        await engine.call("/continue_generation")
        assert (await engine.call("/flush_cache"))["success"]
        stats = (await engine.call("/get_server_info"))["internal_states"][0]
        assert stats["free_slots"] == stats["total_slots"]

    with Engine("hashed", factories=HASHED, chunked_prefill_size=16, max_running_requests=2) as engine:
        asyncio.run(asyncio.wait_for(test(engine), 20))


async def busy(engine: Engine) -> int:
    stats = (await engine.call("/get_server_info"))["internal_states"][0]
    return int(stats["num_running"] + stats["num_waiting"])


def test_a_pause_holds_requests_back_until_it_is_over(engine: Engine) -> None:
    async def test() -> None:
        reply = await engine.call("/pause_generation", {"mode": "in_place"})
        assert reply["success"]
        request = {"text": "abc", "sampling_params": {"temperature": 0, "max_new_tokens": 3}}
        call = asyncio.ensure_future(engine.call("/generate", request))
        while not (await engine.call("/get_server_info"))["internal_states"][0]["num_waiting"]:
            await asyncio.sleep(0)
        # Nothing runs, and what waits holds no slot.
        assert (await engine.call("/flush_cache"))["success"]
        assert not call.done()
        await engine.call("/continue_generation")
        assert (await call)["output_ids"] == continuation([BOS_ID, *b"abc"], 3)

    asyncio.run(asyncio.wait_for(test(), 20))


def test_a_flush_waits_for_running_requests_if_told_to(engine: Engine) -> None:
    async def test() -> None:
        await engine.call("/pause_generation", {"mode": "in_place"})
        # More than the slots hold at a time, so that it takes a while.
        request = {"text": "abc", "sampling_params": {"n": 8, "max_new_tokens": 190}}
        call = asyncio.ensure_future(engine.call("/generate", request))
        await engine.call("/continue_generation")
        while not (await engine.call("/get_server_info"))["internal_states"][0]["num_running"]:
            await asyncio.sleep(0)
        assert not (await engine.call("/flush_cache"))["success"]
        assert (await engine.call("/flush_cache", {"timeout": 10}))["success"]
        assert [len(reply["output_ids"]) for reply in await call] == [190] * 8

    asyncio.run(asyncio.wait_for(test(), 20))
    for timeout in (0, -1, "5", True, 1e9):
        with pytest.raises(InvalidRequestError, match="timeout is"):
            engine.call_and_wait("/flush_cache", {"timeout": timeout})


def test_a_pause_knows_three_modes(engine: Engine) -> None:
    with pytest.raises(InvalidRequestError, match="mode is 'stop'; it must be one of abort, retract, in_place"):
        engine.call_and_wait("/pause_generation", {"mode": "stop"})


def test_hidden_states_are_a_list_of_the_prompts_and_then_one_for_each_token(engine: Engine) -> None:
    for _ in range(2):
        reply = generate(engine, "xyz", 3, return_hidden_states=True)
        ids = [BOS_ID, *b"xyz", *reply["output_ids"]]
        prompt, *output = reply["meta_info"]["hidden_states"]
        assert prompt == [[place, token] for place, token in enumerate(ids[:4])]
        assert output == [[4, ids[4]], [5, ids[5]]]
    assert "hidden_states" not in generate(engine, "xyz")["meta_info"]


def test_features_that_are_off_are_refused_by_name() -> None:
    with Engine("hashed", factories=HASHED) as engine:
        with pytest.raises(InvalidRequestError, match="--enable-return-hidden-states"):
            generate(engine, "a", return_hidden_states=True)
        with pytest.raises(InvalidRequestError, match="the server was started with none"):
            generate(engine, "a", custom_logit_processor="some")
        text = f'{{"callable": "{pickle.dumps(print).hex()}"}}'
        with pytest.raises(InvalidRequestError, match="--enable-custom-logit-processor"):
            generate(engine, "a", custom_logit_processor=text)


def test_processors_are_named_and_given_params(engine: Engine) -> None:
    reply = generate(engine, "a", custom_logit_processor="some", sampling={"custom_params": {"x": 1}})
    assert len(reply["output_ids"]) == 4
    with pytest.raises(InvalidRequestError, match="custom_logit_processor failed: no") as caught:
        generate(engine, "a", custom_logit_processor="fail")
    assert caught.value.param == "custom_logit_processor"
    with pytest.raises(InvalidRequestError, match="'other'; the server was started with fail, some"):
        generate(engine, "a", custom_logit_processor="other")
    with pytest.raises(InvalidRequestError, match="given without custom_logit_processor"):
        generate(engine, "a", sampling={"custom_params": {"x": 1}})
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    for params, message in (
        ({"x": deep}, "nests more than 32"),
        ({"x": "y" * 70_000}, "at most 65536"),
        (3, "an object"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            generate(engine, "a", custom_logit_processor="some", sampling={"custom_params": params})
    with pytest.raises(InvalidRequestError, match="is no JSON object"):
        generate(engine, "a", custom_logit_processor='{"callable": "xyz"}')


@pytest.mark.parametrize("text", ["a", "a=b", "a=b:", "=b:c", "a=b:c,a=d:e", "{=b:c"])
def test_a_wrong_list_of_processors_is_a_setup_error(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME=MODULE:ATTRIBUTE"):
        Engine("hashed", factories=HASHED, custom_logit_processor=text)


def test_the_limits_of_requests_are_published_and_hold_to_the_token(engine: Engine) -> None:
    info = engine.get_server_info()
    assert info["max_req_len"] == CONTEXT_LENGTH
    assert info["max_req_input_len"] == CONTEXT_LENGTH - 1
    assert info["max_total_tokens"] == info["internal_states"][0]["total_slots"]
    assert info["max_running_requests"] == 256
    assert info["max_prefill_tokens"] >= info["chunked_prefill_size"] > 0
    ids = [7] * CONTEXT_LENGTH
    for num_ids, max_new, outcome in (
        (info["max_req_input_len"], None, 1),
        (info["max_req_input_len"] + 1, None, None),
        (info["max_req_input_len"] + 1, 0, 0),
        (CONTEXT_LENGTH - 5, 9, 5),
    ):
        sampling = {"temperature": 0, "max_new_tokens": max_new}
        if outcome is None:
            with pytest.raises(ContextLengthError, match=f"has {num_ids} tokens; the context holds {CONTEXT_LENGTH}"):
                engine.generate(input_ids=ids[:num_ids], sampling_params=sampling)
        else:
            reply = engine.generate(input_ids=ids[:num_ids], sampling_params=sampling)
            assert len(reply["output_ids"]) == outcome
    with pytest.raises(ContextLengthError):
        engine.generate(input_ids=[*ids, 7], sampling_params={"max_new_tokens": 0})


@pytest.mark.parametrize("chunk", [-1, 16])
def test_outputs_of_one_prompt_compute_it_once(chunk: int) -> None:
    with Engine("hashed", factories=HASHED, chunked_prefill_size=chunk) as engine:
        sampling = {"n": 4, "temperature": 1, "sampling_seed": 3, "max_new_tokens": 6}
        replies = engine.generate("p" * 50, sampling)
        stats = engine.get_server_info()["internal_states"][0]
        alone = engine.generate("p" * 50, {**sampling, "n": 1})
    assert len({tuple(reply["output_ids"]) for reply in replies}) == 4
    assert replies[0]["output_ids"] == alone["output_ids"]
    assert stats["prompt_tokens_total"] == 4 * 51
    assert stats["cached_tokens_total"] == 3 * 50
    # With log probabilities of the prompt each output has them, and the same.
    with Engine("hashed", factories=HASHED, chunked_prefill_size=chunk) as engine:
        replies = engine.generate("p" * 50, sampling, return_logprob=True, logprob_start_len=0)
    scores = [reply["meta_info"]["input_token_logprobs"] for reply in replies]
    assert len(scores[0]) == 51
    assert scores == [scores[0]] * 4


LINE = re.compile(r"(\w+)=([\w.\-]+)")


def facts(record: logging.LogRecord) -> dict[str, str]:
    return dict(LINE.findall(record.getMessage()))


def test_the_scheduler_counts_what_the_request_log_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sgl_runtime")
    with Engine("hashed", factories=HASHED, log_requests=True, decode_log_interval=1) as engine:
        prompts = ["the same beginning of all " + word for word in ("one", "two", "two", "three")]
        generate(engine, prompts[0])
        engine.generate(prompts, [{"temperature": 0, "max_new_tokens": 5 + place} for place in range(4)])
        stats = engine.get_server_info()["internal_states"][0]
    lines = {kind: [facts(r) for r in caplog.records if r.getMessage().startswith(kind)] for kind in KINDS}
    received, ended = lines["request received"], lines["request ended"]
    prefills, decodes = lines["prefill"], lines["decode"]

    def total(entries: list[dict[str, str]], name: str) -> int:
        return sum(int(entry[name]) for entry in entries)

    assert len(received) == len(ended) == total(prefills, "new_seqs") == 5
    assert total(ended, "cached_tokens") == total(prefills, "cached_tokens") == stats["cached_tokens_total"] > 0
    assert total(ended, "prompt_tokens") == stats["prompt_tokens_total"]
    computed = total(ended, "prompt_tokens") - total(ended, "cached_tokens")
    assert total(prefills, "new_tokens") == computed
    assert total(ended, "generated_tokens") == stats["generation_tokens_total"] == total(decodes, "generated")
    assert float(prefills[0]["hit_rate"]) == 0.0
    assert max(int(line["batch"]) for line in decodes) == 4
    assert int(prefills[-1]["running"]) == 4
    assert float(prefills[-1]["token_usage"]) > 0.0
    assert stats["last_gen_throughput"] > 0.0


KINDS = ("request received", "request ended", "prefill", "decode")
