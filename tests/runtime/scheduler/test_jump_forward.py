"""Forced text is appended without a pass for each token, and changes no output."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from sgl_runtime.ipc.messages import AbortRequest, TokenDelta, TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 3}, "is_active": {"type": "boolean"}},
        "required": ["name", "is_active"],
    }
)
LOG = r"(start|stop) of the process [0-9]: (ok|failed)"


def by_bytes(text: str) -> list[int]:
    """A tokenizer with a token for every byte."""
    return list(text.encode())


def request(rid: str, prompt: list[int], **sampling: Any) -> TokenizedRequest:
    max_new_tokens = sampling.pop("max_new_tokens", 60)
    return TokenizedRequest(
        rid=rid,
        input_ids=prompt,
        sampling=SamplingParams(max_new_tokens=max_new_tokens, **sampling),
        return_logprob=False,
        logprob_start_len=-1,
    )


@dataclass
class Outcome:
    """The text of each request, its last delta, and how many passes gave it tokens."""

    texts: dict[str, bytes]
    last: dict[str, TokenDelta]
    num_passes: dict[str, int]


def finished(bench: Any, requests: list[TokenizedRequest]) -> Outcome:
    for each in requests:
        bench.scheduler.accept(each)
    ids: dict[str, list[int]] = {each.rid: [] for each in requests}
    last: dict[str, TokenDelta] = {}
    num_passes = dict.fromkeys(ids, 0)
    while bench.scheduler.has_work():
        deltas = bench.scheduler.step()
        for delta in deltas:
            num_passes[delta.rid] += bool(delta.new_ids)
            ids[delta.rid] += delta.new_ids
            last[delta.rid] = delta
    bench.scheduler.check()
    texts = {rid: bytes(token for token in found if token < 256) for rid, found in ids.items()}
    return Outcome(texts, last, num_passes)


def all_requests() -> list[TokenizedRequest]:
    return [
        request("json", [1, 2, 3], json_schema=SCHEMA, temperature=0.0),
        request("drawn", [1, 2, 3], json_schema=SCHEMA, temperature=1.0, sampling_seed=5),
        request("log", [4, 5], regex=LOG, temperature=0.0),
        request("stop", [4, 5], regex=LOG, temperature=0.0, stop=("proc",)),
        request("short", [6], regex=LOG, temperature=0.0, max_new_tokens=9),
        request("free", [7, 8], temperature=0.0, max_new_tokens=30),
        request("ids", [9], regex=LOG, temperature=0.0, stop_token_ids=(ord("h"),)),
    ]


@pytest.mark.parametrize("num_slots", [512, 150])
def test_output_is_the_same_with_and_without(make_bench: Callable[..., Any], num_slots: int) -> None:
    jumped, plain = (
        finished(make_bench(jump_forward=jump, encode=by_bytes, num_slots=num_slots), all_requests())
        for jump in (True, False)
    )
    assert jumped.texts == plain.texts
    for rid, delta in plain.last.items():
        assert jumped.last[rid].finish == delta.finish
        assert delta.forced_tokens == 0
    assert jumped.texts["json"].startswith(b'{"name": "')
    assert jumped.last["json"].forced_tokens > 20
    assert jumped.texts["stop"].endswith(b"proc")
    assert len(jumped.texts["short"]) == 9
    assert jumped.last["short"].finish.type == "length"
    assert jumped.last["free"].forced_tokens == 0
    # Of each request, since when a grammar is compiled, and so which requests share a pass, differs from run to run.
    assert jumped.num_passes["json"] < plain.num_passes["json"]
    assert jumped.num_passes["log"] < plain.num_passes["log"]
    assert jumped.num_passes["free"] == plain.num_passes["free"] == 30


def test_a_text_that_is_forced_to_its_end_takes_one_pass(make_bench: Callable[..., Any]) -> None:
    text = b"exactly this"
    outcome = finished(make_bench(encode=by_bytes), [request("all", [1], choices=(text.decode(),), temperature=0.0)])
    assert outcome.texts["all"] == text
    assert outcome.last["all"].finish.type == "stop"
    assert outcome.last["all"].forced_tokens == len(text) - 1
    assert outcome.num_passes["all"] == 1


def test_where_text_goes_on_the_last_token_is_left_open(make_bench: Callable[..., Any]) -> None:
    outcome = finished(make_bench(encode=by_bytes), [request("open", [1], regex="abcdef[xy]", temperature=0.0)])
    assert outcome.texts["open"].startswith(b"abcdef")
    # The first is drawn with the prompt, the last might be one token with what follows.
    assert outcome.last["open"].forced_tokens == 4


def test_an_abort_amid_forced_text_loses_no_slot(make_bench: Callable[..., Any]) -> None:
    bench = make_bench(encode=by_bytes)
    bench.scheduler.accept(request("gone", [1, 2], json_schema=SCHEMA, temperature=0.0))
    while not any(delta.new_ids for delta in bench.scheduler.step()):
        pass
    bench.scheduler.accept(AbortRequest(rid="gone", request_id="a"))
    assert not bench.scheduler.has_work()
    bench.scheduler.check()


def test_log_probabilities_take_a_pass_for_each_token(make_bench: Callable[..., Any]) -> None:
    bench = make_bench(encode=by_bytes)
    wanted = TokenizedRequest(
        rid="scored",
        input_ids=[1, 2],
        sampling=SamplingParams(max_new_tokens=60, json_schema=SCHEMA, temperature=0.0),
        return_logprob=True,
        logprob_start_len=-1,
    )
    plain = finished(bench, [request("plain", [1, 2], json_schema=SCHEMA, temperature=0.0)])
    scored = finished(bench, [wanted])
    assert scored.texts["scored"] == plain.texts["plain"]
    assert scored.last["scored"].forced_tokens == 0


@pytest.mark.parametrize("overlap", [False, True])
def test_what_was_forced_is_told_the_same_whether_it_took_a_pass_or_not(
    make_bench: Callable[..., Any], overlap: bool
) -> None:
    def forced_places(*, jump: bool, return_logprob: bool) -> dict[str, list[int]]:
        bench = make_bench(jump_forward=jump, encode=by_bytes, overlap=overlap)
        for each in all_requests():
            bench.scheduler.accept(msgspec.structs.replace(each, return_logprob=return_logprob))
        numbers: dict[str, int] = {}
        places: dict[str, list[int]] = {}
        while bench.scheduler.has_work():
            for delta in bench.scheduler.step():
                end = numbers[delta.rid] = numbers.get(delta.rid, 0) + len(delta.new_ids)
                places.setdefault(delta.rid, []).extend(range(end - delta.num_forced_ids, end))
        return places

    jumped = forced_places(jump=True, return_logprob=False)
    assert forced_places(jump=False, return_logprob=False) == jumped
    assert forced_places(jump=True, return_logprob=True) == jumped
    assert jumped["free"] == []
    # The last byte of a forced text is left to the model, which may write it together with what follows.
    assert set(range(5, 4 + len(" of the process"))) <= set(jumped["log"])
