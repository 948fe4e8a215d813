"""Sampled tokens follow the distribution that the settings describe."""

import numpy as np
import pytest
import torch

from sgl_runtime.batch import SamplingBatch
from sgl_runtime.device.base import select_device
from sgl_runtime.device.cpu import CpuOps
from sgl_runtime.model_runner.sampler import Sampler

DEVICE = select_device("cpu", num_threads=None)


def settings(size: int, *, temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0, seed=0) -> SamplingBatch:
    return SamplingBatch(
        temperatures=np.full(size, temperature, dtype=np.float32),
        top_ps=np.full(size, top_p, dtype=np.float32),
        top_ks=np.full(size, top_k, dtype=np.int32),
        min_ps=np.full(size, min_p, dtype=np.float32),
        uniforms=np.random.default_rng(seed).random(size),
    )


def plain_distribution(logits: np.ndarray, *, temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0) -> np.ndarray:
    """The filters, one after another, in float64."""
    probs = np.exp(logits / temperature - np.max(logits / temperature))
    probs /= probs.sum()
    order = np.argsort(-probs, kind="stable")
    if top_k > 0:
        probs[order[top_k:]] = 0
        probs /= probs.sum()
    if top_p < 1:
        before = np.cumsum(probs[order]) - probs[order]
        probs[order[before >= top_p]] = 0
        probs /= probs.sum()
    probs[probs < min_p * probs.max()] = 0
    return probs / probs.sum()


@pytest.mark.parametrize(("vocab_size", "num_draws"), [(12, 20_000), (3000, 6000)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"top_k": 3},
        {"top_p": 0.6},
        {"min_p": 0.2},
        {"top_k": 6, "top_p": 0.8, "min_p": 0.05, "temperature": 1.3},
        {"top_k": 2000, "top_p": 0.97},
        {"top_p": 0.999},
    ],
)
def test_draws_follow_the_distribution(vocab_size, num_draws, options):
    logits = np.random.default_rng(3).normal(size=vocab_size) * 2
    wanted = plain_distribution(logits, **options)
    rows = torch.tensor(logits, dtype=torch.float32).expand(num_draws, -1).clone()
    drawn = torch.cat(
        [
            Sampler(DEVICE).sample(part, settings(len(part), **options, seed=i))
            for i, part in enumerate(rows.split(2000))
        ]
    )
    counts = np.bincount(drawn.numpy(), minlength=vocab_size)
    assert counts[wanted < 1e-9].sum() == 0
    # Chi-square over the tokens that are expected at least five times, the rest together.
    expected = wanted * num_draws
    big = expected >= 5
    observed = np.append(counts[big], counts[~big].sum())
    expected = np.append(expected[big], max(expected[~big].sum(), 1e-9))
    keep = expected > 1e-3
    statistic = ((observed - expected)[keep] ** 2 / expected[keep]).sum()
    degrees = keep.sum() - 1
    assert statistic < degrees + 5 * np.sqrt(2 * degrees) + 5


def test_rows_keep_their_own_settings_and_depend_on_no_other_row():
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    batch = SamplingBatch(
        temperatures=np.array([0, 1, 1, 0, 2, 1], dtype=np.float32),
        top_ps=np.array([1, 1, 0.5, 1, 1, 0.9], dtype=np.float32),
        top_ks=np.array([-1, -1, -1, -1, 4, -1], dtype=np.int32),
        min_ps=np.zeros(6, dtype=np.float32),
        uniforms=np.random.default_rng(2).random(6),
    )
    together = Sampler(DEVICE).sample(logits.clone(), batch)
    assert together[[0, 3]].tolist() == logits.argmax(-1)[[0, 3]].tolist()
    for row in range(6):
        alone = Sampler(DEVICE).sample(logits[row : row + 1].clone(), batch.select(np.arange(6) == row))
        assert alone.tolist() == together[row : row + 1].tolist()


def test_masked_tokens_are_never_drawn():
    logits = torch.randn(400, 70, generator=torch.Generator().manual_seed(1))
    allowed = np.random.default_rng(4).random((400, 96)) < 0.05
    allowed[:, 69] = True
    allowed[:, 70:] = False
    masks = np.packbits(allowed, axis=1, bitorder="little").view(np.int32)
    CpuOps().mask_logits(logits, torch.from_numpy(masks))
    for options in ({}, {"top_p": 0.9}, {"temperature": 0.0}, {"top_k": 5}):
        drawn = Sampler(DEVICE).sample(logits.clone(), settings(400, **options)).numpy()
        assert allowed[np.arange(400), drawn].all()


def test_a_draw_depends_on_no_batch_mate_where_probabilities_are_equal():
    """One mate needs all tokens sorted, and equal probabilities may stand in another order then."""
    vocab = 5000
    logits = torch.zeros(2, vocab)
    logits[1] = torch.randn(vocab, generator=torch.Generator().manual_seed(3))
    settings = {"top_ps": [1.0, 0.999], "top_ks": [50, -1], "temperatures": [1.0, 1.0], "min_ps": [0.0, 0.0]}
    sampling = SamplingBatch(
        temperatures=np.array(settings["temperatures"], dtype=np.float32),
        top_ps=np.array(settings["top_ps"], dtype=np.float32),
        top_ks=np.array(settings["top_ks"], dtype=np.int32),
        min_ps=np.array(settings["min_ps"], dtype=np.float32),
        uniforms=np.array([0.7, 0.3]),
    )
    together = Sampler(DEVICE).sample(logits.clone(), sampling)
    for row in range(2):
        rows = np.arange(2) == row
        alone = Sampler(DEVICE).sample(logits[row : row + 1].clone(), sampling.select(rows))
        assert int(alone[0]) == int(together[row])
