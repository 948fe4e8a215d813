"""Whose turn it is: under any load those that decode and those that wait for their prompts both go on."""

from typing import Any

import pytest

from sgl_runtime.ipc.messages import TokenDelta, TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams


def request(rid: str, ids: list[int], max_new: int) -> TokenizedRequest:
    settings = SamplingParams(max_new_tokens=max_new, temperature=0.0)
    return TokenizedRequest(rid=rid, input_ids=ids, sampling=settings)


def step(bench: Any) -> list[str]:
    """Requests that got a token."""
    outputs = bench.scheduler.step()
    return [output.rid for output in outputs if isinstance(output, TokenDelta) and output.new_ids]


def finish(bench: Any) -> None:
    while bench.scheduler.has_work():
        bench.scheduler.step()


@pytest.mark.parametrize("overlap", [False, True])
def test_a_request_that_never_fits_ends_with_an_error_of_its_own(make_bench, overlap):
    bench = make_bench(num_slots=64, context=128, overlap=overlap)
    bench.scheduler.accept(request("large", list(range(100)), 4))
    bench.scheduler.accept(request("small", [1, 2, 3], 4))
    ends = {}
    for _ in range(20):
        for output in bench.scheduler.step():
            if isinstance(output, TokenDelta) and output.finish is not None:
                ends[output.rid] = output.finish
    assert not bench.scheduler.has_work()
    assert ends["small"].type == "length"
    assert (ends["large"].type, ends["large"].code) == ("abort", "context_length_exceeded")
    assert "100 tokens" in ends["large"].message


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("chunk", [pytest.param(1, marks=pytest.mark.slow), 12, 15, 20, 40])
def test_who_decodes_waits_for_so_many_prompt_tokens_at_most(make_bench, chunk, overlap):
    bench = make_bench(
        num_slots=4096, max_running=64, chunked_prefill_size=chunk, max_prefill_tokens=40, overlap=overlap
    )
    bench.scheduler.accept(request("decoding", [1, 2], 60))
    while "decoding" not in step(bench):
        pass
    num_batches, num_sent, num_tokens = len(bench.executor.batches), 0, 0
    while num_tokens < 20:
        # A steady stream of prompts, more than there is room for in any pass.
        for _ in range(2):
            num_sent += 1
            bench.scheduler.accept(request(f"r{num_sent}", [3 + num_sent % 200] * (num_sent % 50 + 1), 1))
        num_tokens += step(bench).count("decoding")
    waited = 0
    row = bench.executor.batches[0].row_ids[0]
    for batch in bench.executor.batches[num_batches:]:
        if row in batch.row_ids.tolist():
            waited = 0
        else:
            waited += int(batch.extend_lens.sum())
        assert waited <= 40
    finish(bench)


@pytest.mark.parametrize("settings", [{"chunked_prefill_size": 4}, {"chunked_prefill_size": 1}])
@pytest.mark.parametrize("mixed", [False, True])
def test_prompts_get_their_turn_under_a_full_batch_of_decoding(make_bench, mixed, settings):
    bench = make_bench(num_slots=4096, max_running=16, enable_mixed_chunk=mixed, **settings)
    for index in range(12):
        bench.scheduler.accept(request(f"r{index}", [index], 100))
    got = set[str]()
    while len(got) < 12:
        got.update(step(bench))
    bench.scheduler.accept(request("late", list(range(50, 62)), 1))
    # As many passes as the prompt has pieces, and the turns of the others between them.
    for _ in range(26):
        got.update(step(bench))
    assert "late" in got
    finish(bench)


def test_a_prompt_that_a_full_pass_has_no_room_for_comes_with_the_next(make_bench):
    bench = make_bench(num_slots=4096, context=1024, chunked_prefill_size=100)
    bench.scheduler.accept(request("first", [1, 2], 300))
    bench.scheduler.step()
    bench.scheduler.accept(request("long", list(range(170)), 200))
    bench.scheduler.step()
    bench.scheduler.accept(request("late", [201] * 50, 1))
    got = [rid for _ in range(5) for rid in step(bench)]
    assert "late" in got
    finish(bench)
