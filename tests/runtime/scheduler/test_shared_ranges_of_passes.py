"""What passes say of the positions that their rows share; the executor checks that the rows do."""

from fakes.scripted_executor import next_token
from sgl_runtime.ipc.messages import TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams

COMMON = [i % 200 for i in range(140)]
SIZE = 9
"""Rows that share so many positions, fewer than 1,024 in all, are not told of."""


def request(rid: str, ids: list[int], max_new: int, **settings: object) -> TokenizedRequest:
    sampling = SamplingParams(max_new_tokens=max_new, temperature=0.0, **settings)
    return TokenizedRequest(rid=rid, input_ids=ids, sampling=sampling)


def run(bench) -> None:
    while bench.scheduler.has_work():
        bench.scheduler.step()


def spans(batch) -> list[tuple[list[int], int, int]]:
    return [(sorted(part.rows.tolist()), part.begin, part.end) for part in batch.shared_ranges]


def test_passes_over_prompts_tell_of_what_their_rows_share(make_bench):
    bench = make_bench(overlap=True, context=256, num_slots=2048, max_running=SIZE + 2)
    bench.scheduler.accept(request("before", COMMON, 1))
    run(bench)
    bench.scheduler.accept(request("other", [7] * 20, 1))
    for i in range(SIZE):
        bench.scheduler.accept(request(f"r{i}", [*COMMON, 201 + i, 5, 6], 2))
    run(bench)
    extend = next(batch for batch in bench.executor.batches[1:] if batch.kind == "extend")
    sharing = [row for row, prefix in enumerate(extend.prefix_lens) if prefix]
    assert len(sharing) == SIZE < extend.size
    assert spans(extend) == [(sharing, 0, len(COMMON))]


def test_without_an_accelerator_nothing_is_searched(make_bench):
    bench = make_bench(context=256, num_slots=2048, max_running=SIZE)
    for i in range(SIZE):
        bench.scheduler.accept(request(f"r{i}", [*COMMON, 201 + i], 2))
    run(bench)
    assert not any(batch.shared_ranges for batch in bench.executor.batches)


def test_who_takes_the_row_of_another_does_not_share_what_that_one_did(make_bench):
    bench = make_bench(overlap=True, context=256, num_slots=4096, max_running=SIZE)
    for i in range(SIZE - 1):
        bench.scheduler.accept(request(f"r{i}", [*COMMON, 201 + i], 20))
    # Nobody knows before that this one ends, so that its row is in the next pass, too.
    ids = [*COMMON, 1]
    first = next_token(ids, 256)
    bench.scheduler.accept(request("ends", ids, 20, stop_token_ids=(next_token([*ids, first], 256),)))
    bench.scheduler.accept(request("late", [9] * 200, 20))
    run(bench)
    told = [(batch.size, bool(batch.shared_ranges)) for batch in bench.executor.batches if batch.kind == "decode"]
    assert (SIZE, True) in told
    assert (SIZE, False) in told
