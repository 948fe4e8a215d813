"""However passes are put together, every request ends with the same text, counts and log probabilities.

The scripted executor draws a hash of what lies in a request's slots, so a wrong slot, a stale prefix, a token that came
too late or a random number of the wrong index changes the text.
"""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from sgl_runtime.ipc.messages import AbortRequest, TokenDelta, TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams

CONFIGS: dict[str, dict[str, Any]] = {
    "overlap": {"overlap": True},
    "chunks": {"chunked_prefill_size": 7, "max_prefill_tokens": 20},
    "chunks in overlap": {"chunked_prefill_size": 7, "max_prefill_tokens": 20, "overlap": True},
    "mixed": {"chunked_prefill_size": 11, "enable_mixed_chunk": True},
    "mixed in overlap": {"chunked_prefill_size": 11, "enable_mixed_chunk": True, "overlap": True},
    "no cache in overlap": {"cached": False, "overlap": True},
    "short of slots": {"num_slots": 200, "schedule_conservativeness": 0.1},
    "short of slots in overlap": {"num_slots": 200, "schedule_conservativeness": 0.1, "overlap": True},
    "short of slots, mixed in overlap": {
        "num_slots": 150,
        "schedule_conservativeness": 0.1,
        "overlap": True,
        "chunked_prefill_size": 16,
        "enable_mixed_chunk": True,
    },
    "fcfs": {"schedule_policy": "fcfs", "overlap": True},
    "dfs-weight": {"schedule_policy": "dfs-weight", "overlap": True},
    "lof": {"schedule_policy": "lof", "overlap": True},
    "random": {"schedule_policy": "random", "overlap": True},
    "pages of 16 in overlap": {"cache": {"page_size": 16}, "overlap": True, "chunked_prefill_size": 20},
    "host tier, pages of 16 in overlap": {
        "num_slots": 208,
        "host_slots": 512,
        "cache": {"page_size": 16, "enable_hierarchical_cache": True},
        "overlap": True,
    },
    "no jumps in overlap": {"jump_forward": False, "overlap": True},
}

ALONE = {"num_slots": 4096, "max_running": 1, "cached": False, "chunked_prefill_size": -1, "max_prefill_tokens": 4096}


@dataclass
class Outcome:
    ids: list[int]
    finish: tuple[Any, ...]
    logprobs: list[float]
    input_logprobs: list[float | None] | None


def as_bytes(text: str) -> list[int]:
    """The tokenizer of a vocabulary with a token for each byte."""
    return list(text.encode())


def requests(seed: int) -> list[TokenizedRequest]:
    """Requests of every kind; many share prefixes."""
    rng = random.Random(seed)
    stems = [[rng.randrange(97, 123) for _ in range(rng.randrange(5, 40))] for _ in range(4)]
    kinds: list[dict[str, Any]] = [
        {},
        {"temperature": 1.0},
        {"temperature": 0.7, "frequency_penalty": 0.5},
        {"presence_penalty": 1.0},
        {"repetition_penalty": 1.3, "min_new_tokens": 3},
        {"regex": "[a-f]{2,9}(stop)?[0-9]*"},
        {"regex": "(yes, certainly|no, never)!"},
        {"choices": ("alpha beta gamma", "alpha bravo", "beta")},
        {"stop": ("a", "ab", "q")},
        {"stop_token_ids": (101, 117)},
        {"max_new_tokens": 0},
        {"max_new_tokens": 1},
    ]
    made = []
    for index in range(36):
        ids = [*rng.choice(stems), *(rng.randrange(97, 123) for _ in range(rng.randrange(1, 12)))]
        settings = {"temperature": 0.0, "max_new_tokens": rng.randrange(2, 40), **rng.choice(kinds)}
        wants_logprobs = rng.random() < 0.3
        made.append(
            TokenizedRequest(
                rid=f"r{index}",
                input_ids=ids,
                sampling=SamplingParams(sampling_seed=index, **settings),
                return_logprob=wants_logprobs,
                logprob_start_len=rng.choice([-1, 0, len(ids) // 2, len(ids) - 1]) if wants_logprobs else -1,
                priority=rng.choice([0, 0, 0, 3, 30]),
            )
        )
    return made


def collect(outcomes: dict[str, Outcome], outputs: list[Any]) -> None:
    for delta in outputs:
        if not isinstance(delta, TokenDelta):
            continue
        outcome = outcomes.setdefault(delta.rid, Outcome([], (), [], None))
        assert not outcome.finish, f"{delta.rid} went on after its end"
        outcome.ids += delta.new_ids
        outcome.logprobs += delta.output_logprobs or []
        if delta.input_logprobs is not None:
            assert outcome.input_logprobs is None, "log probabilities of the prompt came twice"
            outcome.input_logprobs = delta.input_logprobs
        if delta.finish is not None:
            outcome.finish = (delta.finish.type, delta.finish.matched, delta.num_trimmed_ids)


def run_alone(make_bench, made: list[TokenizedRequest]) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    bench = make_bench(**ALONE, drawn=123, encode=as_bytes)
    for request in made:
        bench.scheduler.accept(request)
        while bench.scheduler.has_work():
            collect(outcomes, bench.scheduler.step())
    return outcomes


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_same_alone_and_in_company_under(make_bench, name, seed):
    made = requests(seed)
    expected = run_alone(make_bench, made)
    outcomes: dict[str, Outcome] = {}
    settings: dict[str, Any] = {"num_slots": 2048, "max_running": 8, "drawn": 123, "encode": as_bytes, **CONFIGS[name]}
    bench = make_bench(**settings)
    rng = random.Random(seed)
    waiting = list(made)
    while waiting or bench.scheduler.has_work():
        while waiting and rng.random() < 0.6:
            bench.scheduler.accept(waiting.pop(0))
        collect(outcomes, bench.scheduler.step())
        bench.scheduler.check()
    assert outcomes == expected
    if "short" in name:
        assert bench.scheduler.stats()["num_retracted_total"] > 0


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_aborts_at_any_moment_change_nothing_for_others(make_bench, seed, mixed):
    made = requests(seed)
    expected = run_alone(make_bench, made)
    bench = make_bench(
        num_slots=300,
        max_running=8,
        drawn=123,
        encode=as_bytes,
        overlap=True,
        chunked_prefill_size=9,
        enable_mixed_chunk=mixed,
    )
    rng = random.Random(seed)
    outcomes: dict[str, Outcome] = {}
    waiting, live = list(made), set[str]()
    while waiting or bench.scheduler.has_work():
        if waiting and rng.random() < 0.6:
            request = waiting.pop(0)
            live.add(request.rid)
            bench.scheduler.accept(request)
        if live and rng.random() < 0.1:
            outputs = bench.scheduler.accept(AbortRequest(request_id="x", rid=rng.choice(sorted(live))))
            collect(outcomes, outputs)
            bench.scheduler.check()
        collect(outcomes, bench.scheduler.step())
        live -= {rid for rid, outcome in outcomes.items() if outcome.finish}
        bench.scheduler.check()
    ended = {rid: outcome for rid, outcome in outcomes.items() if outcome.finish[0] != "abort"}
    assert len(ended) > 10
    assert ended == {rid: expected[rid] for rid in ended}
    for rid, outcome in outcomes.items():
        assert outcome.ids == expected[rid].ids[: len(outcome.ids)]
