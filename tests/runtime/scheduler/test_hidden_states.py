"""Hidden states and custom processors on their way through the scheduler; the fake model's hidden states are (position, token)."""

import numpy as np
import pytest

from sgl_runtime.ipc.messages import ContinueRequest, PauseRequest, TokenDelta, TokenizedRequest
from sgl_runtime.ipc.request_parts import LogitProcessorCall
from sgl_runtime.sampling_params import SamplingParams


def message(rid: str, ids: list[int], max_new: int, **fields: object) -> TokenizedRequest:
    sampling = SamplingParams(max_new_tokens=max_new, temperature=0.0)
    return TokenizedRequest(rid=rid, input_ids=ids, sampling=sampling, **fields)


def keep(outputs, deltas: dict[str, list[TokenDelta]]) -> None:
    for output in outputs:
        if isinstance(output, TokenDelta):
            deltas.setdefault(output.rid, []).append(output)


def drain(bench, deltas: dict[str, list[TokenDelta]] | None = None) -> dict[str, list[TokenDelta]]:
    deltas = {} if deltas is None else deltas
    while bench.scheduler.has_work():
        keep(bench.scheduler.step(), deltas)
    bench.scheduler.check()
    return deltas


def hidden_rows(deltas: list[TokenDelta]) -> np.ndarray:
    parts = [delta.hidden_states for delta in deltas if delta.hidden_states is not None]
    return np.frombuffer(b"".join(part.data for part in parts), dtype="<f4").reshape(-1, parts[0].size)


def expected_rows(ids: list[int], deltas: list[TokenDelta]) -> np.ndarray:
    """Of all tokens but the last one drawn, which the model never reads."""
    tokens = [*ids, *(token for delta in deltas for token in delta.new_ids)]
    tokens = tokens[:-1] if len(tokens) > len(ids) else tokens
    return np.array(list(enumerate(tokens)), dtype=np.float32)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("chunk", [-1, 16])
def test_every_token_that_was_read_has_one_hidden_state(make_bench, cached, overlap, chunk):
    bench = make_bench(
        num_slots=300,
        context=250,
        cached=cached,
        overlap=overlap,
        chunked_prefill_size=chunk,
        max_running=6,
    )
    prompts = {f"r{i}": [5, 6, 7, *range(20 + 7 * i)] for i in range(6)}
    # The prefix of the others is in the cache already, which must not cost them their hidden states.
    bench.scheduler.accept(message("first", [5, 6, 7, *range(60)], 3))
    drain(bench)
    for rid, ids in prompts.items():
        bench.scheduler.accept(message(rid, ids, 100, return_hidden_states=True))
    bench.scheduler.accept(message("plain", [1, 2], 5))
    deltas: dict[str, list[TokenDelta]] = {}
    for _ in range(12):
        keep(bench.scheduler.step(), deltas)
    keep(bench.scheduler.accept(PauseRequest(request_id="p", mode="retract")), deltas)
    bench.scheduler.accept(ContinueRequest(request_id="p"))
    drain(bench, deltas)
    assert bench.scheduler.stats()["num_retracted_total"] > 0
    for rid, ids in prompts.items():
        assert np.array_equal(hidden_rows(deltas[rid]), expected_rows(ids, deltas[rid])), rid
    assert all(delta.hidden_states is None for delta in deltas["plain"])


def test_a_request_that_draws_nothing_has_those_of_its_prompt(make_bench):
    bench = make_bench()
    bench.scheduler.accept(message("a", [4, 5, 6], 0, return_hidden_states=True))
    (delta,) = drain(bench)["a"]
    assert hidden_rows([delta]).tolist() == [[0, 4], [1, 5], [2, 6]]


@pytest.mark.parametrize("overlap", [True, False])
def test_a_processor_is_given_its_params_and_every_token_so_far(make_bench, overlap):
    bench = make_bench(overlap=overlap)
    call = LogitProcessorCall(name="some", params='{"strength": 3}')
    bench.scheduler.accept(message("plain", [9], 6))
    bench.scheduler.accept(message("a", [4, 5], 4, logit_processor=call))
    deltas = drain(bench)
    out = [token for delta in deltas["a"] for token in delta.new_ids]
    given = bench.executor.processor_params
    assert [params["strength"] for params in given] == [3] * 4
    assert [params["__prompt_ids__"].tolist() for params in given] == [[4, 5]] * 4
    assert [params["__output_ids__"].tolist() for params in given] == [out[:count] for count in range(4)]


@pytest.mark.parametrize("overlap", [True, False])
def test_a_processor_that_fails_ends_its_request_alone(make_bench, overlap):
    bench = make_bench(overlap=overlap)
    bench.scheduler.accept(message("good", [9], 6))
    bench.scheduler.accept(message("bad", [4, 5], 4, logit_processor=LogitProcessorCall(name="fail")))
    deltas = drain(bench)
    reason = deltas["bad"][-1].finish
    assert reason.message == "custom_logit_processor failed: no"
    assert (reason.code, reason.param) == ("invalid_request", "custom_logit_processor")
    assert len(deltas["good"]) == 6
