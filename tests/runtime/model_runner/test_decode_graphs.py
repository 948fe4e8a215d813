"""A small model on the kernels of a GPU, eager and in graphs, beside the same model in plain torch."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from fakes.interpreted_device import InterpretedDevice
from fakes.small_model import make_runner
from sgl_runtime.batch import Batch, SamplingBatch
from sgl_runtime.device.base import Device, select_device
from sgl_runtime.model_runner.decode_graphs import graph_sizes
from sgl_runtime.model_runner.model_runner import ModelRunner
from sgl_runtime.model_runner.pass_output import TokenChoice


def make_batch(kind: str, rows: list[int], prefixes: list[int], ids: list[list[int]], **settings: Any) -> Batch:
    """Row r of the table has the slots r, r + 5, r + 10, ...; settings are of all rows, or lists."""
    size = len(rows)
    lens = [len(part) for part in ids]
    places = [range(p, p + n) for p, n in zip(prefixes, lens, strict=True)]
    return Batch(
        kind=kind,
        row_ids=np.array(rows, dtype=np.int32),
        prefix_lens=np.array(prefixes, dtype=np.int32),
        extend_lens=np.array(lens, dtype=np.int32),
        input_ids=np.array([token for part in ids for token in part], dtype=np.int64),
        slot_ids=np.array([row + 5 * p for row, at in zip(rows, places, strict=True) for p in at], dtype=np.int32),
        changed_slots=tuple(
            (row, np.arange(p, dtype=np.int32) * 5 + row) for row, p in zip(rows, prefixes, strict=True)
        ),
        samples=np.ones(size, dtype=np.bool_),
        sampling=SamplingBatch(
            temperatures=np.full(size, settings.get("temperature", 0.0), dtype=np.float32),
            top_ps=np.full(size, settings.get("top_p", 1.0), dtype=np.float32),
            top_ks=np.full(size, settings.get("top_k", -1), dtype=np.int32),
            min_ps=np.full(size, settings.get("min_p", 0.0), dtype=np.float32),
            uniforms=np.random.default_rng(settings.get("seed", size)).random(size),
        ),
        wants_logprob=np.full(size, settings.get("logprobs", False)),
        logprob_starts=np.full(size, -1, dtype=np.int32),
    )


def run(runner: ModelRunner, batch: Batch) -> tuple[list[int], torch.Tensor, np.ndarray]:
    output = runner.forward(batch)
    logits = output.logits.clone()
    result = runner.sample(batch, output).wait()
    return result.token_ids.tolist(), logits, result.logprobs


@pytest.fixture(scope="module")
def plain_runner() -> ModelRunner:
    return make_runner(select_device("cpu", num_threads=None))


@pytest.fixture
def device() -> Device:
    return select_device("cuda", num_threads=None) if torch.cuda.is_available() else InterpretedDevice()


@pytest.fixture
def used_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """New tensors hold numbers that products of them overflow with."""
    empty = torch.empty

    def filled(*shape: Any, **settings: Any) -> torch.Tensor:
        tensor = empty(*shape, **settings)
        return tensor.fill_(3e38) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch, "empty", filled)


def test_prefill_and_decode_equal_plain_torch(used_memory, device, plain_runner):
    """Three rows in a graph of four: what the fourth computes with reaches none of them."""
    runner = make_runner(device)
    prompts = [[5, 250, 7], [1, 2, 3, 4, 5, 6, 7, 8, 9], [299]]
    rows = [3, 0, 4]
    passes = [make_batch("extend", rows, [0, 0, 0], prompts)]
    # Then tokens that only the device knows.
    passes += [
        make_batch("decode", rows, [len(ids) + step for ids in prompts], [[-1 - row] for row in rows])
        for step in range(4)
    ]
    for batch in passes:
        tokens, logits, _ = run(runner, batch)
        expected, expected_logits, _ = run(plain_runner, batch)
        torch.testing.assert_close(logits.cpu(), expected_logits, atol=1e-4, rtol=1e-4)
        assert tokens == expected


def test_draws_in_a_graph_are_those_outside_of_it(device):
    tokens, logprobs = [], []
    for logs in (False, True):
        runner = make_runner(device)
        run(runner, make_batch("extend", [0, 1], [0, 0], [[5, 6], [7, 8]]))
        batch = make_batch("decode", [0, 1], [2, 2], [[9], [10]], temperature=1.5, logprobs=logs)
        assert runner.forward(batch).drawn is not None
        drawn, logits, values = run(runner, batch)
        tokens.append(drawn)
        logprobs.append((logits.float().log_softmax(-1).cpu(), values))
    assert tokens[0] == tokens[1]
    everything, values = logprobs[1]
    assert values == pytest.approx(everything[[0, 1], tokens[1]].numpy(), abs=1e-5)
    assert np.isnan(logprobs[0][1]).all()


# By row: none, each filter alone, all of them, and filters that a greedy row does not heed.
MIXED = {
    "temperature": [1.0, 1.5, 1.0, 0.8, 2.0, 0.0],
    "top_k": [-1, 4, -1, -1, 40, 2],
    "top_p": [1.0, 1.0, 0.6, 1.0, 0.9, 0.5],
    "min_p": [0.0, 0.0, 0.0, 0.2, 0.02, 0.5],
}


def filtered_draws(runner: ModelRunner, places: list[int], *, is_edited: bool) -> list[list[int]]:
    """What rows of these settings draw in passes that go on from each other."""
    settings = {name: [values[place] for place in places] for name, values in MIXED.items()}
    rows = list(range(len(places)))
    prompts = [[5 + place, 250] for place in places]
    tokens = [run(runner, make_batch("extend", rows, [0] * len(rows), prompts, seed=7, **settings))[0]]
    for step in range(2):
        batch = make_batch("decode", rows, [2 + step] * len(rows), [[-1 - row] for row in rows], seed=step, **settings)
        # A pass in which the host may have something to say ends with the logits.
        output = runner.forward(dataclasses.replace(batch, is_edited=is_edited))
        assert (output.drawn is None) == is_edited
        tokens.append(runner.sample(batch, output).wait().token_ids.tolist())
    return tokens


def test_filtered_draws_in_a_graph_are_those_outside_of_it(device):
    """Where rows fill the graph, and where they do not."""
    runner = make_runner(device)
    for places in ([0, 1, 2, 3], [4, 1, 5]):
        inside, outside = (filtered_draws(runner, places, is_edited=is_edited) for is_edited in (False, True))
        assert inside == outside


def test_a_filter_leaves_the_likeliest_token_alone_in_a_graph(device):
    runner = make_runner(device)
    run(runner, make_batch("extend", [0, 1], [0, 0], [[5, 6], [7, 8]]))
    for settings in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        batch = make_batch("decode", [0, 1], [2, 2], [[9], [10]], temperature=1.0, **settings)
        output = runner.forward(batch)
        assert output.drawn is not None
        best = output.logits.argmax(-1).tolist()
        assert runner.sample(batch, output).wait().token_ids.tolist() == best


def test_a_sampler_of_another_library_draws_filtered_rows_itself(device):
    runner = make_runner(device, sampling_backend="pytorch")
    run(runner, make_batch("extend", [0], [0], [[5, 6]]))
    assert runner.forward(make_batch("decode", [0], [2], [[9]], temperature=1.0)).drawn is not None
    batch = make_batch("decode", [0], [2], [[9]], temperature=1.0, top_k=1)
    output = runner.forward(batch)
    assert output.drawn is None
    best = output.logits.argmax(-1).tolist()
    assert runner.sample(batch, output).wait().token_ids.tolist() == best


def test_masks_are_heeded_outside_of_the_graph(device):
    runner = make_runner(device)
    run(runner, make_batch("extend", [0], [0], [[5, 6]]))
    masks = np.zeros((1, 10), dtype=np.int32)
    masks[0, 7] = 1 << 3
    batch = dataclasses.replace(make_batch("decode", [0], [2], [[9]], temperature=1.0), is_edited=True)
    assert runner.sample(batch, runner.forward(batch), TokenChoice(masks)).wait().token_ids.tolist() == [7 * 32 + 3]
    # The next pass goes on from it.
    follow = make_batch("decode", [0], [3], [[-1]])
    known = make_batch("decode", [0], [3], [[227]])
    torch.testing.assert_close(runner.forward(follow).logits.clone(), runner.forward(known).logits.clone())


@pytest.mark.parametrize("most", [1, 3, 8, 100, 256, 1000])
def test_sizes_of_graphs_rise_to_the_largest(most):
    sizes = graph_sizes(most)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == min(most, 512)
