"""The scheduler over a model whose next token is a hash of what lies in the slots."""

import random

import pytest

from fakes.scripted_executor import next_token
from sgl_runtime.ipc.messages import (
    AbortReply,
    AbortRequest,
    DetokenizeStart,
    FlushCacheReply,
    FlushCacheRequest,
    StatsReply,
    StatsRequest,
    TokenDelta,
    TokenizedRequest,
)
from sgl_runtime.sampling_params import SamplingParams


def request(rid: str, ids: list[int], max_new: int, **sampling: object) -> TokenizedRequest:
    settings = SamplingParams(max_new_tokens=max_new, temperature=0.0, **sampling)
    return TokenizedRequest(rid=rid, input_ids=ids, sampling=settings)


def continuation(ids: list[int], max_new: int, drawn: int) -> list[int]:
    out: list[int] = []
    for _ in range(max_new):
        out.append(next_token(ids + out, drawn))
    return out


def drain(bench) -> dict[str, list[TokenDelta]]:
    deltas: dict[str, list[TokenDelta]] = {}
    while bench.scheduler.has_work():
        for output in bench.scheduler.step():
            if isinstance(output, TokenDelta):
                deltas.setdefault(output.rid, []).append(output)
    bench.scheduler.check()
    return deltas


def output_ids(deltas: list[TokenDelta]) -> list[int]:
    return [token for delta in deltas for token in delta.new_ids]


def test_second_identical_prompt_finds_all_but_the_last_token(make_bench):
    bench = make_bench()
    ids = list(range(40))
    for rid, cached in (("a", 0), ("b", 39)):
        bench.scheduler.accept(request(rid, ids, 5))
        deltas = drain(bench)[rid]
        assert output_ids(deltas) == continuation(ids, 5, 256)
        assert deltas[-1].cached_tokens == cached
        assert deltas[-1].finish.type == "length"


def test_the_output_is_cached_too(make_bench):
    bench = make_bench()
    ids = list(range(10))
    bench.scheduler.accept(request("a", ids, 6))
    turn = ids + output_ids(drain(bench)["a"]) + [1, 2, 3]
    bench.scheduler.accept(request("b", turn, 2))
    assert drain(bench)["b"][-1].cached_tokens == 15


@pytest.mark.parametrize("cached", [True, False])
def test_requests_that_run_out_of_slots_are_retracted_and_end_the_same(make_bench, cached):
    bench = make_bench(num_slots=300, context=290, cached=cached)
    prompts = {f"r{i}": [i, 7, 9, *range(i)] for i in range(8)}
    for rid, ids in prompts.items():
        bench.scheduler.accept(request(rid, ids, 270))
    deltas = drain(bench)
    for rid, ids in prompts.items():
        assert output_ids(deltas[rid]) == continuation(ids, 270, 256), rid
    assert bench.scheduler.stats()["num_running"] == 0


def test_retraction_happens_when_the_reserve_was_too_small(make_bench):
    bench = make_bench(num_slots=1100, context=1000, max_running=4)
    prompts = {f"r{i}": [i, 3, 5] for i in range(4)}
    for rid, ids in prompts.items():
        bench.scheduler.accept(request(rid, ids, 600))
    deltas = drain(bench)
    assert bench.scheduler.stats()["num_retracted_total"] > 0
    for rid, ids in prompts.items():
        assert output_ids(deltas[rid]) == continuation(ids, 600, 256), rid


def test_prompts_with_one_prefix_in_one_pass_keep_one_copy(make_bench):
    bench = make_bench()
    common = list(range(30))
    for i in range(4):
        bench.scheduler.accept(request(f"r{i}", [*common, 100 + i], 8))
    deltas = drain(bench)
    for i in range(4):
        assert output_ids(deltas[f"r{i}"]) == continuation([*common, 100 + i], 8, 256)
    # 30 shared tokens, and for each request its own prompt token and 7 of its 8 outputs.
    assert bench.scheduler.stats()["cached_slots"] == 30 + 4 * 8


def test_no_new_tokens_fill_the_cache(make_bench):
    bench = make_bench()
    bench.scheduler.accept(request("a", [1, 2, 3], 0))
    (delta,) = drain(bench)["a"]
    assert delta.new_ids == []
    assert delta.finish.type == "length"
    assert bench.scheduler.stats()["cached_slots"] == 3


def test_end_of_sequence_ends_unless_ignored(make_bench):
    ids = next(ids for ids in ([a, b] for a in range(256) for b in range(256)) if next_token(ids, 257) == 256)
    bench = make_bench(drawn=257)
    bench.scheduler.accept(request("a", ids, 9))
    bench.scheduler.accept(request("b", ids, 9, ignore_eos=True))
    deltas = drain(bench)
    assert output_ids(deltas["a"]) == [256]
    assert deltas["a"][-1].finish.matched == 256
    assert deltas["a"][-1].num_trimmed_ids == 1
    assert len(output_ids(deltas["b"])) == 9


def test_stop_string_over_several_tokens_ends_at_once(make_bench):
    bench = make_bench(drawn=128)
    ids = [5, 6, 7]
    expected = continuation(ids, 40, 128)
    stop = bytes(expected[10:13]).decode()
    first = bytes(expected).decode().find(stop) + len(stop)
    bench.scheduler.accept(request("a", ids, 40, stop=("zzzz", stop)))
    deltas = drain(bench)["a"]
    assert output_ids(deltas) == expected[:first]
    assert deltas[-1].finish.matched == stop


def test_abort_reaches_waiting_running_and_compiling_requests(make_bench):
    bench = make_bench(max_running=1)
    bench.scheduler.accept(request("running", [1, 2, 3], 100))
    bench.scheduler.step()
    bench.scheduler.accept(request("waiting", [1, 2, 3], 100))
    bench.scheduler.accept(request("compiling", [1, 2, 3], 100, regex="[a-z]{1,90}"))
    for rid in ("running", "waiting", "compiling"):
        *deltas, reply = bench.scheduler.accept(AbortRequest(request_id="x", rid=rid))
        assert reply == AbortReply(request_id="x", rids=[rid])
        assert [delta.finish.type for delta in deltas] == ["abort"]
        bench.scheduler.check()
    assert not bench.scheduler.has_work()
    assert bench.scheduler.accept(AbortRequest(request_id="y", rid="nobody")) == [AbortReply(request_id="y", rids=[])]


def test_flush_is_refused_while_busy_and_empties_the_cache_when_idle(make_bench):
    bench = make_bench()
    bench.scheduler.accept(request("a", [1, 2, 3], 5))
    (reply,) = bench.scheduler.accept(FlushCacheRequest(request_id="f"))
    assert isinstance(reply, FlushCacheReply)
    assert not reply.success
    drain(bench)
    (reply,) = bench.scheduler.accept(FlushCacheRequest(request_id="g"))
    assert reply.success
    assert bench.scheduler.stats()["free_slots"] == 512
    bench.scheduler.accept(request("b", [1, 2, 3], 5))
    assert drain(bench)["b"][-1].cached_tokens == 0


def test_accept_tells_the_detokenizer_how_to_decode(make_bench):
    bench = make_bench()
    (start,) = bench.scheduler.accept(request("a", [1], 1, stop=("x",), no_stop_trim=True))
    assert start == DetokenizeStart(rid="a", stop=("x",), no_stop_trim=True)


def test_counters_equal_a_recount(make_bench):
    bench = make_bench()
    for i in range(5):
        bench.scheduler.accept(request(f"r{i}", list(range(20)), 3 + i))
        drain(bench)
    (reply,) = bench.scheduler.accept(StatsRequest(request_id="s"))
    assert isinstance(reply, StatsReply)
    assert reply.stats["prompt_tokens_total"] == 100
    assert reply.stats["cached_tokens_total"] == 4 * 19
    assert reply.stats["generation_tokens_total"] == 3 + 4 + 5 + 6 + 7


def test_a_prompt_over_the_prefill_budget_runs_alone(make_bench):
    bench = make_bench(max_prefill_tokens=16, chunked_prefill_size=-1)
    bench.scheduler.accept(request("a", list(range(50)), 1))
    bench.scheduler.accept(request("b", list(range(60, 70)), 1))
    drain(bench)
    assert [len(batch.input_ids) for batch in bench.executor.batches] == [50, 10]


@pytest.mark.parametrize("seed", range(4))
def test_random_work_loses_no_slot_and_changes_no_output(make_bench, seed):
    rng = random.Random(seed)
    bench = make_bench(num_slots=260, context=120, max_running=6, max_prefill_tokens=64, drawn=4, cached=seed != 3)
    live: dict[str, tuple[list[int], int]] = {}
    got: dict[str, list[int]] = {}
    count = 0
    for _ in range(1500):
        if rng.random() < 0.3:
            ids = [rng.randrange(3) for _ in range(rng.randrange(1, 60))]
            max_new = rng.randrange(0, 60)
            rid = f"r{count}"
            count += 1
            live[rid] = (ids, max_new)
            bench.scheduler.accept(request(rid, ids, max_new))
        elif rng.random() < 0.1 and live:
            rid = rng.choice(sorted(live))
            bench.scheduler.accept(AbortRequest(request_id="x", rid=rid))
            live.pop(rid)
        for output in bench.scheduler.step():
            assert isinstance(output, TokenDelta)
            if output.rid not in live:
                continue
            got.setdefault(output.rid, []).extend(output.new_ids)
            if output.finish is not None:
                ids, max_new = live.pop(output.rid)
                assert got[output.rid] == continuation(ids, max_new, 4)
        bench.scheduler.check()
    assert count > 300
