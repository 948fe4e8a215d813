"""Requests for vectors, and prompts given as embeddings, on their way through the scheduler.

The fake model's vector is, over the span that it is made of, the number of tokens, the sum of their positions and that of
their ids; a row of an embedding stands for the token that its first number says.
"""

import random
from typing import Any

import numpy as np
import pytest

from fakes.scripted_executor import next_token
from sgl_runtime.ipc.messages import AbortRequest, ContinueRequest, PauseRequest, TokenDelta, TokenizedRequest
from sgl_runtime.ipc.request_parts import FloatRows
from sgl_runtime.sampling_params import SamplingParams

WAYS = ("mean", "cls", "last")
CONFIGS: dict[str, dict[str, Any]] = {
    "whole prompts": {"chunked_prefill_size": -1},
    "whole prompts, no cache": {"chunked_prefill_size": -1, "cached": False, "max_prefill_tokens": 60},
    "pieces": {"chunked_prefill_size": 9, "max_prefill_tokens": 30},
    "pieces in overlap": {"chunked_prefill_size": 9, "overlap": True, "enable_mixed_chunk": True},
    "a pool of one context": {"chunked_prefill_size": 20, "overlap": True, "num_slots": 128},
    "pages": {"chunked_prefill_size": 20, "cache": {"page_size": 16}, "num_slots": 256},
}


def pooled(rid: str, ids: list[int], way: str, **fields: Any) -> TokenizedRequest:
    sampling = SamplingParams(max_new_tokens=0)
    return TokenizedRequest(rid=rid, input_ids=ids, sampling=sampling, pooling=way, **fields)


def generating(rid: str, ids: list[int], max_new: int, *, given: bool = False, **fields: Any) -> TokenizedRequest:
    sampling = SamplingParams(max_new_tokens=max_new, temperature=0.0)
    if given:
        rows = np.stack([np.array(ids), np.zeros(len(ids))], axis=1).astype("<f4")
        fields |= {"input_embeds": FloatRows(2, rows.tobytes())}
    return TokenizedRequest(rid=rid, input_ids=[] if given else ids, sampling=sampling, **fields)


def expected_vector(ids: list[int], way: str) -> list[float]:
    places = {"mean": range(len(ids)), "cls": range(1), "last": range(len(ids) - 1, len(ids))}[way]
    values = np.array([len(places), sum(places), sum(ids[place] for place in places)], dtype=np.float32)
    return (values / len(ids) if way == "mean" else values).tolist()


def expected_output(ids: list[int], count: int, num_tokens: int) -> list[int]:
    tokens = list(ids)
    for _ in range(count):
        tokens.append(next_token(tokens, num_tokens))
    return tokens[len(ids) :]


def vector(delta: TokenDelta) -> list[float]:
    assert delta.vector is not None
    return np.frombuffer(delta.vector.data, dtype="<f4").tolist()


def drained(bench: Any) -> dict[str, list[TokenDelta]]:
    deltas: dict[str, list[TokenDelta]] = {}
    while bench.scheduler.has_work():
        for output in bench.scheduler.step():
            deltas.setdefault(output.rid, []).append(output)
        bench.scheduler.check()
    return deltas


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_many_requests_of_all_kinds_at_a_time(make_bench: Any, config: dict[str, Any]) -> None:
    rng = random.Random(3)
    bench = make_bench(**config)
    stems = [[rng.randrange(250) for _ in range(60)] for _ in range(2)]
    sent: dict[str, tuple[list[int], str]] = {}
    deltas: dict[str, list[TokenDelta]] = {}
    aborted: set[str] = set()

    def step() -> None:
        for output in bench.scheduler.step():
            deltas.setdefault(output.rid, []).append(output)
        bench.scheduler.check()

    for index in range(120):
        ids = [*rng.choice(stems)[: rng.randrange(61)], *(rng.randrange(250) for _ in range(rng.randrange(1, 30)))]
        kind = rng.choice([*WAYS, "ids", "given"])
        rid = f"r{index}"
        sent[rid] = ids, kind
        if kind in WAYS:
            message = pooled(rid, ids, kind, priority=rng.choice([0, 0, 40]))
        else:
            message = generating(rid, ids, 8, given=kind == "given", priority=rng.choice([0, 0, 40]))
        bench.scheduler.accept(message)
        for _ in range(rng.randrange(3)):
            step()
        live = [name for name in sent if not any(delta.finish for delta in deltas.get(name, ()))]
        if live and rng.random() < 0.1:
            chosen = rng.choice(live)
            aborted.add(chosen)
            outputs = bench.scheduler.accept(AbortRequest(request_id="x", rid=chosen))
            deltas.setdefault(chosen, []).extend(output for output in outputs if isinstance(output, TokenDelta))
        if rng.random() < 0.1:
            for output in bench.scheduler.accept(PauseRequest(request_id="p", mode="retract")):
                if isinstance(output, TokenDelta):
                    deltas.setdefault(output.rid, []).append(output)
            bench.scheduler.check()
            bench.scheduler.accept(ContinueRequest(request_id="c"))
    while bench.scheduler.has_work():
        step()
    for rid in sent.keys() - aborted:
        ids, kind = sent[rid]
        last = deltas[rid][-1]
        assert last.finish is not None
        assert last.prompt_tokens == len(ids)
        if kind in WAYS:
            assert vector(last) == pytest.approx(expected_vector(ids, kind))
        else:
            output = [token for delta in deltas[rid] for token in delta.new_ids]
            assert output == expected_output(ids, 8, bench.executor.num_tokens), kind
        if kind in ("mean", "cls", "given"):
            assert last.cached_tokens == 0
    assert all(deltas[rid][-1].finish is not None for rid in aborted)
    assert all(deltas[rid][-1].vector is None for rid in aborted if deltas[rid][-1].finish.type == "abort")


def test_vectors_of_a_pass_come_together_and_count_as_prompts(make_bench: Any) -> None:
    bench = make_bench(chunked_prefill_size=-1, cached=False)
    for index in range(6):
        bench.scheduler.accept(pooled(f"r{index}", [index + 1] * (index + 1), "mean", segment_start=index // 2))
    deltas = drained(bench)
    assert len(bench.executor.batches) == 1
    batch = bench.executor.batches[0]
    assert not batch.samples.any()
    starts = np.cumsum([0, 1, 2, 3, 4, 5])
    for index, start in enumerate(starts):
        kinds = batch.segments[start : start + index + 1].tolist()
        assert kinds == [int(place >= index // 2) for place in range(index + 1)]
        assert vector(deltas[f"r{index}"][-1]) == pytest.approx(expected_vector([index + 1] * (index + 1), "mean"))
    stats = bench.scheduler.stats()
    assert (stats["prompt_tokens_total"], stats["generation_tokens_total"]) == (21, 0)


def test_whole_prompts_keep_to_the_budget_of_a_pass(make_bench: Any) -> None:
    bench = make_bench(chunked_prefill_size=-1, cached=False, max_prefill_tokens=40)
    for index in range(5):
        bench.scheduler.accept(pooled(f"r{index}", [7] * 18, "mean"))
    bench.scheduler.accept(pooled("long", [8] * 100, "last"))
    drained(bench)
    assert [int(batch.extend_lens.sum()) for batch in bench.executor.batches] == [36, 36, 18, 100]


def test_a_last_vector_uses_a_cached_prefix_and_others_do_not(make_bench: Any) -> None:
    bench = make_bench()
    for round_number in range(2):
        for way in WAYS:
            bench.scheduler.accept(pooled(f"{way}{round_number}", list(range(50)), way))
            last = drained(bench)[f"{way}{round_number}"][-1]
            assert vector(last) == pytest.approx(expected_vector(list(range(50)), way))
            assert last.cached_tokens == (49 if way == "last" else 0)


@pytest.mark.parametrize("chunk", [-1, 16])
def test_given_embeddings_share_nothing_and_leave_nothing(make_bench: Any, chunk: int) -> None:
    bench = make_bench(chunked_prefill_size=chunk)
    ids = list(range(10, 70))
    for index in range(2):
        bench.scheduler.accept(generating(f"g{index}", ids, 12, given=True))
        deltas = drained(bench)[f"g{index}"]
        assert [token for delta in deltas for token in delta.new_ids] == expected_output(ids, 12, 256)
        assert deltas[-1].cached_tokens == 0
        assert bench.scheduler.stats()["cached_slots"] == 0
        assert bench.scheduler.stats()["free_slots"] == bench.scheduler.stats()["total_slots"]
    # Nor do the ids that hold the places of embeddings meet a prompt of the same ids.
    bench.scheduler.accept(generating("ids", [0] * 60, 3))
    drained(bench)
    bench.scheduler.accept(generating("given", ids, 3, given=True))
    assert drained(bench)["given"][-1].cached_tokens == 0


def test_penalties_count_no_places_of_embeddings(make_bench: Any) -> None:
    bench = make_bench(drawn=3)
    message = generating("g", [1, 2, 1, 2], 4, given=True)
    penalised = TokenizedRequest(
        rid="g",
        input_ids=[],
        input_embeds=message.input_embeds,
        sampling=SamplingParams(max_new_tokens=1, temperature=0.0, repetition_penalty=2.0),
    )
    bench.scheduler.accept(penalised)
    (delta,) = drained(bench)["g"]
    assert delta.new_ids == expected_output([1, 2, 1, 2], 1, 3)
