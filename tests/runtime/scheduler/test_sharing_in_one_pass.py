"""Requests of one pass share prefixes that this very pass computes."""

import random

import pytest

from fakes.scripted_executor import logprob_of, next_token
from sgl_runtime.ipc.messages import AbortRequest, TokenAlternatives, TokenDelta, TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams


def request(
    rid: str, ids: list[int], max_new: int = 0, *, start: int | None = None, **fields: object
) -> TokenizedRequest:
    return TokenizedRequest(
        rid=rid,
        input_ids=ids,
        sampling=SamplingParams(max_new_tokens=max_new, temperature=0.0, **fields.pop("sampling", {})),
        return_logprob=start is not None,
        logprob_start_len=-1 if start is None else start,
        **fields,
    )


def run(bench, requests: list[TokenizedRequest]) -> dict[str, list[TokenDelta]]:
    deltas: dict[str, list[TokenDelta]] = {}
    for message in requests:
        bench.scheduler.accept(message)
    while bench.scheduler.has_work():
        for output in bench.scheduler.step():
            assert isinstance(output, TokenDelta)
            deltas.setdefault(output.rid, []).append(output)
        bench.scheduler.check()
    return deltas


def num_computed(bench) -> int:
    return sum(len(batch.input_ids) for batch in bench.executor.batches if batch.kind == "extend")


def test_a_common_prefix_is_computed_once_in_the_pass_that_needs_it(make_bench):
    bench = make_bench()
    common = list(range(50))
    run(bench, [request(f"r{i}", [*common, 100 + i], 3) for i in range(5)])
    assert bench.executor.batches[0].size == 5
    assert bench.executor.batches[0].extend_lens.tolist() == [51, 1, 1, 1, 1]
    assert bench.scheduler.stats()["cached_tokens_total"] == 4 * 50


def test_identical_prompts_compute_only_the_last_token_again(make_bench):
    bench = make_bench()
    ids = list(range(30))
    deltas = run(bench, [request(f"r{i}", ids, 4) for i in range(3)])
    assert bench.executor.batches[0].extend_lens.tolist() == [30, 1, 1]
    assert [delta[-1].cached_tokens for delta in deltas.values()] == [0, 29, 29]
    assert len({tuple(token for delta in each for token in delta.new_ids) for each in deltas.values()}) == 1
    assert bench.scheduler.stats()["cached_slots"] == 33


def test_requests_that_have_ended_leave_shared_slots_to_those_that_go_on(make_bench):
    bench = make_bench()
    ids = list(range(20))
    deltas = run(bench, [request("first", ids), request("second", [*ids, 7], 5), request("third", [*ids, 7, 8])])
    out = [token for delta in deltas["second"] for token in delta.new_ids]
    expected: list[int] = []
    for _ in range(5):
        expected.append(next_token([*ids, 7, *expected], 256))
    assert out == expected


def test_a_chain_of_options_costs_its_new_tokens_and_one_each(make_bench):
    bench = make_bench(context=100, num_slots=4096, max_running=400, chunked_prefill_size=4096)
    rng = random.Random(3)
    prompt = [rng.randrange(200) for _ in range(40)]
    options = sorted({tuple(rng.randrange(4) for _ in range(rng.randrange(1, 9))) for _ in range(400)})
    requests, distinct, before = [], 0, ()
    for place, option in enumerate(options):
        shared = next(
            (i for i, (a, b) in enumerate(zip(option, before, strict=False)) if a != b), min(len(option), len(before))
        )
        distinct += len(option) - shared
        requests.append(request(f"r{place}", [*prompt, *option], start=len(prompt) + shared))
        before = option
    deltas = run(bench, requests)
    assert num_computed(bench) <= len(prompt) + distinct + len(options)
    for message in requests:
        ids, start = message.input_ids, message.logprob_start_len
        (delta,) = deltas[message.rid]
        wanted = [logprob_of(ids[:place], ids[place]) for place in range(start, len(ids))]
        assert (delta.input_logprobs or []) == wanted


def expected_logprobs(message: TokenizedRequest, ids: list[int]) -> list[float | None]:
    return [
        logprob_of(ids[:place], ids[place]) if place else None for place in range(message.logprob_start_len, len(ids))
    ]


@pytest.mark.parametrize("seed", range(5))
def test_random_batches_with_shared_prefixes_give_what_each_gives_alone(make_bench, seed):
    rng = random.Random(seed)
    bench = make_bench(
        num_slots=400, context=110, max_running=12, max_prefill_tokens=rng.choice([40, 200]), cached=seed != 4
    )
    live: dict[str, TokenizedRequest] = {}
    got: dict[str, list[TokenDelta]] = {}
    for count in range(500):
        for place in range(rng.randrange(4)):
            ids = [rng.randrange(2) for _ in range(rng.randrange(1, 30))]
            start = rng.choice([None, rng.randrange(len(ids))])
            rules = rng.choice([{}, {"repetition_penalty": 1.5, "min_new_tokens": 3}])
            rid = f"r{count}.{place}"
            live[rid] = request(rid, ids, rng.randrange(8), start=start, sampling=rules, priority=rng.randrange(2))
            bench.scheduler.accept(live[rid])
        if live and rng.random() < 0.15:
            rid = rng.choice(sorted(live))
            bench.scheduler.accept(AbortRequest(request_id="x", rid=rid))
            del live[rid]
        for output in bench.scheduler.step():
            assert isinstance(output, TokenDelta)
            if output.rid in live:
                got.setdefault(output.rid, []).append(output)
                if output.finish is not None:
                    check_alone(live.pop(output.rid), got.pop(output.rid))
        bench.scheduler.check()


def check_alone(message: TokenizedRequest, deltas: list[TokenDelta]) -> None:
    ids = list(message.input_ids)
    if message.logprob_start_len >= 0:
        assert deltas[0].input_logprobs == expected_logprobs(message, ids)
    for delta in deltas:
        for token in delta.new_ids:
            assert token == next_token(ids, 256)
            if message.return_logprob:
                assert delta.output_logprobs == [logprob_of(ids, token)]
            ids.append(token)


def test_alternatives_are_those_of_their_positions_whatever_is_cached(make_bench):
    bench = make_bench()
    ids = list(range(20))
    for rid in ("cold", "warm"):
        message = request(rid, ids, 2, start=0 if rid == "cold" else 12, top_logprobs_num=3, token_ids_logprob=(5, 9))
        deltas = run(bench, [request(f"{rid} plain", ids), message])[rid]
        entries = deltas[0].input_alternatives
        assert entries is not None
        assert (entries[0] is None) == (rid == "cold")
        for place, entry in enumerate(entries, start=message.logprob_start_len):
            assert entry is None or entry == alternatives(ids[:place])
        assert deltas[0].output_alternatives == [alternatives(ids)]
        assert deltas[1].output_alternatives == [alternatives([*ids, *deltas[0].new_ids])]
        assert deltas[1].input_alternatives is None


def alternatives(context: list[int]) -> TokenAlternatives:
    top = [next_token(context, 200) + rank for rank in range(3)]
    return TokenAlternatives(
        [(logprob_of(context, token), token) for token in top], [logprob_of(context, token) for token in (5, 9)]
    )


def test_larger_priorities_run_first_and_ties_by_arrival(make_bench):
    bench = make_bench(max_running=1)
    priorities = {"a": 0, "b": 5, "c": -1, "d": 5, "e": 0}
    for rid, priority in priorities.items():
        bench.scheduler.accept(request(rid, [1, 2], 1, priority=priority))
    order = [output.rid for _ in range(5) for output in bench.scheduler.step()]
    assert order == ["b", "d", "a", "e", "c"]


def test_the_least_urgent_request_is_retracted(make_bench):
    bench = make_bench(num_slots=1100, context=1000, max_running=4)
    for rid, priority in {"a": 0, "b": 1, "c": 2, "d": 1}.items():
        bench.scheduler.accept(request(rid, [ord(rid), 3, 5], 600, priority=priority))
    ended: list[str] = []
    while bench.scheduler.has_work():
        ended += [output.rid for output in bench.scheduler.step() if output.finish is not None]
    assert bench.scheduler.stats()["num_retracted_total"] > 0
    assert (ended[0], ended[-1]) == ("c", "a")


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("page_size", [1, 8])
def test_tokens_computed_again_in_pieces_fit_into_a_pool_of_one_context(make_bench, page_size, overlap):
    bench = make_bench(
        num_slots=128, context=128, chunked_prefill_size=24, overlap=overlap, cache={"page_size": page_size}
    )
    ids = [place % 7 for place in range(120)]
    run(bench, [request("cold", ids)])
    for start in (0, 20, 60, 100):
        message = request(f"from {start}", ids, 8, start=start)
        deltas = run(bench, [message])[message.rid]
        check_alone(message, deltas)
        assert deltas[-1].finish.type == "length"
