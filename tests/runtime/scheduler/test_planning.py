"""What goes into a pass: pieces of prompts, turns of those that decode, order of those that wait, urgency."""

import pytest

from fakes.scripted_executor import next_token
from sgl_runtime.ipc.messages import TokenDelta, TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams


def request(rid: str, ids: list[int], max_new: int, priority: int = 0) -> TokenizedRequest:
    settings = SamplingParams(max_new_tokens=max_new, temperature=0.0)
    return TokenizedRequest(rid=rid, input_ids=ids, sampling=settings, priority=priority)


def first_tokens(bench) -> list[str]:
    """Request ids in the order in which they got their first token."""
    order: list[str] = []
    while bench.scheduler.has_work():
        for output in bench.scheduler.step():
            if isinstance(output, TokenDelta) and output.new_ids and output.rid not in order:
                order.append(output.rid)
    return order


def passes(bench) -> list[tuple[str, list[int]]]:
    return [(batch.kind, batch.extend_lens.tolist()) for batch in bench.executor.batches]


def test_a_long_prompt_is_computed_in_pieces_between_which_others_decode(make_bench):
    bench = make_bench(chunked_prefill_size=10, max_prefill_tokens=20)
    bench.scheduler.accept(request("a", [1, 2, 3], 20))
    bench.scheduler.step()
    bench.scheduler.accept(request("b", list(range(10, 65)), 2))
    while bench.scheduler.has_work():
        bench.scheduler.step()
    assert passes(bench)[1:10] == [
        ("extend", [10]),
        ("extend", [10]),
        ("decode", [1]),
        ("extend", [10]),
        ("extend", [10]),
        ("decode", [1]),
        ("extend", [10]),
        ("extend", [5]),
        ("decode", [1, 1]),
    ]


def test_in_mixed_passes_others_decode_along_within_the_budget(make_bench):
    bench = make_bench(chunked_prefill_size=10, enable_mixed_chunk=True)
    bench.scheduler.accept(request("a", [1, 2, 3], 20))
    bench.scheduler.step()
    bench.scheduler.accept(request("b", list(range(10, 35)), 4))
    while bench.scheduler.has_work():
        bench.scheduler.step()
    assert passes(bench)[1:5] == [("extend", [9, 1]), ("extend", [9, 1]), ("extend", [7, 1]), ("decode", [1, 1])]


def test_who_shares_a_prefix_with_a_prompt_in_pieces_waits_for_it(make_bench):
    bench = make_bench(chunked_prefill_size=16)
    common = list(range(40))
    for i in range(3):
        bench.scheduler.accept(request(f"r{i}", [*common, 100 + i], 1))
    while bench.scheduler.has_work():
        bench.scheduler.step()
    assert sum(sum(lens) for kind, lens in passes(bench) if kind == "extend") == 40 + 3


def test_prompts_come_longest_cached_prefix_first(make_bench):
    bench = make_bench(max_running=1, schedule_policy="lpm")
    bench.scheduler.accept(request("first", list(range(20)), 1))
    first_tokens(bench)
    for rid, ids in {"none": [90, 91], "some": [*range(10), 95], "most": [*range(18), 96]}.items():
        bench.scheduler.accept(request(rid, ids, 1))
    assert first_tokens(bench) == ["most", "some", "none"]


def test_by_arrival_and_longest_output_first(make_bench):
    for policy, expected in (("fcfs", ["a", "b", "c"]), ("lof", ["c", "a", "b"])):
        bench = make_bench(max_running=1, schedule_policy=policy)
        for rid, max_new in (("a", 4), ("b", 2), ("c", 9)):
            bench.scheduler.accept(request(rid, [ord(rid)] * 5, max_new))
        assert first_tokens(bench) == expected


def test_the_heaviest_subtree_comes_first(make_bench):
    bench = make_bench(max_running=1, schedule_policy="dfs-weight")
    left, right = [1, 2, 3, 4], [5, 6, 7, 8]
    for rid, ids in (("l", left), ("r", right)):
        bench.scheduler.accept(request(rid, ids, 1))
    first_tokens(bench)
    for rid, ids in {"l1": [*left, 9], "r1": [*right, 9], "r2": [*right, 10], "x": [99], "r3": [*right, 11]}.items():
        bench.scheduler.accept(request(rid, ids, 1))
    # Of two that are left on either side the first that came; who shares nothing comes last.
    assert first_tokens(bench) == ["r1", "r2", "l1", "r3", "x"]


def test_random_order_is_repeatable_with_a_seed_and_keeps_priorities(make_bench):
    bench = make_bench(max_running=1, schedule_policy="random")
    for i in range(12):
        bench.scheduler.accept(request(f"r{i}", [i], 1, priority=i % 2))
    order = first_tokens(bench)
    assert sorted(order[:6]) == sorted(f"r{i}" for i in range(1, 12, 2))
    assert sorted(order) == sorted(f"r{i}" for i in range(12))


def test_nobody_is_overtaken_without_end(make_bench):
    bench = make_bench(max_running=1, schedule_policy="lpm", context=64, num_slots=256)
    bench.scheduler.accept(request("warm", list(range(30)), 1))
    first_tokens(bench)
    bench.scheduler.accept(request("cold", [200, 201], 1))
    order: list[str] = []
    for i in range(300):
        bench.scheduler.accept(request(f"hot{i}", [*range(30), 100 + i % 50], 1))
        order += [output.rid for output in bench.scheduler.step() if isinstance(output, TokenDelta)]
    assert 120 < order.index("cold") < 140
    first_tokens(bench)


@pytest.mark.parametrize("gap", [9, 10])
def test_an_urgent_request_takes_the_place_of_one_that_is_less_urgent_by_the_threshold(make_bench, gap):
    bench = make_bench(max_running=1, priority_scheduling_preemption_threshold=10)
    bench.scheduler.accept(request("calm", [1, 2, 3], 12))
    bench.scheduler.step()
    bench.scheduler.accept(request("urgent", [4, 5], 1, priority=gap))
    ended = [
        output.rid
        for _ in range(40)
        for output in bench.scheduler.step()
        if isinstance(output, TokenDelta) and output.finish is not None
    ]
    assert ended == (["urgent", "calm"] if gap == 10 else ["calm", "urgent"])


def test_a_preempted_request_is_not_retracted_for_one_that_would_not_fit_anyway(make_bench):
    bench = make_bench(num_slots=64, context=64, max_running=4)
    bench.scheduler.accept(request("urgent", list(range(40)), 20, priority=50))
    bench.scheduler.accept(request("calm", [90, 91], 10))
    bench.scheduler.step()
    bench.scheduler.accept(request("large", list(range(100, 160)), 2, priority=49))
    first_tokens(bench)
    assert bench.scheduler.stats()["num_retracted_total"] == 0


def test_the_reserve_is_learned(make_bench):
    bench = make_bench(num_slots=2048, context=1024, max_running=64)
    planner = bench.scheduler._planner
    before = planner.estimate.ratio
    for i in range(100):
        stop = next_token([i, next_token([i], 256)], 256)
        settings = SamplingParams(max_new_tokens=1000, temperature=0.0, stop_token_ids=(stop,))
        bench.scheduler.accept(TokenizedRequest(rid=f"r{i}", input_ids=[i], sampling=settings))
        first_tokens(bench)
    assert planner.estimate.ratio < before / 3
