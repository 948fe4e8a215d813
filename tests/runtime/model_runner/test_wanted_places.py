"""Of a prompt's tokens the last layer computes only what is wanted of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fakes.small_model import SHAPES, make_runner
from sgl_runtime.batch import Batch, SamplingBatch
from sgl_runtime.device.base import Device, select_device

LENGTHS = (5, 1, 7)


@pytest.fixture(scope="module")
def device() -> Device:
    return select_device("cpu", num_threads=None)


def prompts(samples: tuple[bool, ...]) -> Batch:
    size, total = len(LENGTHS), sum(LENGTHS)
    return Batch(
        kind="extend",
        row_ids=np.arange(size, dtype=np.int32),
        prefix_lens=np.zeros(size, dtype=np.int32),
        extend_lens=np.array(LENGTHS, dtype=np.int32),
        input_ids=np.arange(total, dtype=np.int64) % SHAPES["vocab_size"],
        slot_ids=np.arange(total, dtype=np.int32),
        changed_slots=(),
        samples=np.array(samples),
        sampling=SamplingBatch(
            temperatures=np.zeros(size, dtype=np.float32),
            top_ps=np.ones(size, dtype=np.float32),
            top_ks=np.full(size, -1, dtype=np.int32),
            min_ps=np.zeros(size, dtype=np.float32),
            uniforms=np.zeros(size, dtype=np.float64),
        ),
        wants_logprob=np.zeros(size, dtype=np.bool_),
        logprob_starts=np.full(size, -1, dtype=np.int32),
    )


def run(device: Device, batch: Batch) -> tuple[torch.Tensor | None, list[int]]:
    """The logits of a pass, and how many tokens each layer's feed-forward block had."""
    runner, counts = make_runner(device), []
    for layer in runner._model.decoder.layers:
        layer.mlp.register_forward_pre_hook(lambda module, given: counts.append(len(given[0])))
    return runner.forward(batch).logits, counts


@pytest.mark.parametrize("samples", [(True, True, True), (True, False, True), (False, False, True)])
def test_logits_are_those_of_a_pass_that_computes_all(device, samples):
    batch = prompts(samples)
    found, counts = run(device, batch)
    expected, all_counts = run(device, replace(batch, hidden_starts=np.array([-1, 0, -1], dtype=np.int32)))
    assert counts == [sum(LENGTHS), sum(samples)]
    assert all_counts == [sum(LENGTHS)] * 2
    assert found is not None
    torch.testing.assert_close(found, expected)


def test_log_probabilities_of_a_prompt_want_all_of_it(device):
    batch = replace(prompts((True, True, True)), logprob_starts=np.array([-1, -1, 0], dtype=np.int32))
    assert run(device, batch)[1] == [sum(LENGTHS)] * 2


def test_a_part_of_a_prompt_that_draws_nothing_has_no_logits(device):
    logits, counts = run(device, prompts((False, False, False)))
    assert logits is None
    assert counts == [sum(LENGTHS), 1]
