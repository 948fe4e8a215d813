"""Samplers that filter by kernels, beside the plain one; in Triton's interpreter where there is no GPU."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.fake_flashinfer import FakeFlashInfer, fake_flashinfer
from fakes.interpreted_device import InterpretedDevice
from sgl_runtime.batch import SamplingBatch
from sgl_runtime.device.base import Device, select_device
from sgl_runtime.device.flashinfer_library import why_no_sampling
from sgl_runtime.model_runner.flashinfer_sampler import FlashInferSampler
from sgl_runtime.model_runner.sampler import TokenSampler, filter_sorted
from sgl_runtime.model_runner.triton_sampler import TritonSampler

SETTINGS = [  # Temperature, top-k, top-p, min-p.
    (0.0, -1, 1.0, 0.0),
    (1.0, -1, 1.0, 0.0),
    (1.3, 4, 1.0, 0.0),
    (1.0, -1, 0.5, 0.0),
    (0.8, -1, 1.0, 0.3),
    (1.0, 30, 0.8, 0.1),
    (0.0, 5, 0.5, 0.0),
]
SAMPLING = SamplingBatch(
    temperatures=np.array([row[0] for row in SETTINGS], dtype=np.float32),
    top_ks=np.array([row[1] for row in SETTINGS], dtype=np.int32),
    top_ps=np.array([row[2] for row in SETTINGS], dtype=np.float32),
    min_ps=np.array([row[3] for row in SETTINGS], dtype=np.float32),
    uniforms=np.random.default_rng(1).random(len(SETTINGS)),
)


def top_k_renorm_probs(probs: torch.Tensor, top_ks: torch.Tensor) -> torch.Tensor:
    ones = torch.ones(len(probs), 1)
    return _by_sorting(
        probs, lambda values: filter_sorted(values, ones, top_ks=top_ks.unsqueeze(1), top_ps=ones, min_ps=0 * ones)
    )


def top_p_renorm_probs(probs: torch.Tensor, top_ps: torch.Tensor) -> torch.Tensor:
    ones = torch.ones(len(probs), 1)
    every = ones.long() * probs.shape[1]
    return _by_sorting(
        probs, lambda values: filter_sorted(values, ones, top_ks=every, top_ps=top_ps.unsqueeze(1), min_ps=0 * ones)
    )


def _by_sorting(probs: torch.Tensor, keep: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    values, ids = probs.sort(dim=-1, descending=True)
    kept = torch.zeros_like(probs).scatter_(1, ids, keep(values))
    return kept / kept.sum(dim=-1, keepdim=True)


@pytest.fixture
def library(tmp_path: Path) -> Iterator[FakeFlashInfer]:
    with fake_flashinfer(tmp_path) as package:
        package.build("sampling")
        package.module.sampling = type(package.module)("sampling")
        package.module.sampling.top_k_renorm_probs = top_k_renorm_probs
        package.module.sampling.top_p_renorm_probs = top_p_renorm_probs
        yield package


def logits_and_masks(dtype: torch.dtype, device: Device) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(6)
    logits = (3 * torch.randn(len(SETTINGS), 6000, generator=generator)).to(device.torch_device, dtype)
    words = torch.randint(-(2**31), 2**31, (len(SETTINGS), 188), dtype=torch.int32, generator=generator)
    return logits, words.to(device.torch_device)


def check(sampler: TokenSampler, device: Device, dtype: torch.dtype, *, has_masks: bool) -> torch.Tensor:
    """Each row alone draws what it draws among the others; and what it draws may come."""
    logits, masks = logits_and_masks(dtype, device)
    given = masks if has_masks else None
    together = sampler.sample(logits.clone(), SAMPLING, given)
    for row in range(len(SETTINGS)):
        mask = None if given is None else given[row : row + 1]
        alone = sampler.sample(logits[row : row + 1].clone(), SAMPLING.select(np.arange(len(SETTINGS)) == row), mask)
        assert int(alone[0]) == int(together[row])
    forbidden = logits.float()
    if has_masks:
        device.ops.mask_logits(forbidden, masks)
    greedy = torch.tensor(SAMPLING.temperatures == 0)
    assert torch.equal(together.cpu()[greedy], forbidden.argmax(dim=-1).cpu()[greedy])
    for row, (temperature, top_k, top_p, min_p) in enumerate(SETTINGS):
        if temperature > 0:
            probs = (forbidden[row] / temperature).softmax(dim=-1)
            rank = int((probs > probs[together[row]]).sum())
            above = float(probs[probs > probs[together[row]]].sum())
            assert rank < top_k or top_k < 0
            assert above < top_p
            assert probs[together[row]] >= min_p * probs.max()
    return together


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("has_masks", [False, True])
def test_kernels_draw_what_the_settings_allow(dtype, has_masks):
    device = select_device("cuda", num_threads=None) if torch.cuda.is_available() else InterpretedDevice()
    check(TritonSampler(device), device, dtype, has_masks=has_masks)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the fake package is plain torch on a CPU")
@pytest.mark.parametrize("has_masks", [False, True])
def test_flashinfer_leaves_what_our_kernels_leave(library, has_masks):
    device = InterpretedDevice()
    drawn = check(FlashInferSampler(device), device, torch.float32, has_masks=has_masks)
    assert torch.equal(drawn, check(TritonSampler(device), device, torch.float32, has_masks=has_masks))


@pytest.mark.skipif(torch.cuda.is_available(), reason="the fake package is plain torch on a CPU")
def test_flashinfer_leaves_the_logits_as_they_are(library):
    """Log probabilities are asked of them behind the draw."""
    device = InterpretedDevice()
    logits, _ = logits_and_masks(torch.float32, device)
    before = logits.clone()
    FlashInferSampler(device).sample(logits, SAMPLING)
    assert torch.equal(logits, before)


@pytest.mark.gpu
@pytest.mark.parametrize("has_masks", [False, True])
def test_on_a_gpu_flashinfer_leaves_what_our_kernels_leave(has_masks):
    device = select_device("cuda", num_threads=None)
    reason = why_no_sampling(device.torch_device)
    if reason is not None:
        pytest.skip(reason)
    sampler = FlashInferSampler(device)
    drawn = check(sampler, device, torch.float32, has_masks=has_masks)
    assert torch.equal(drawn, check(TritonSampler(device), device, torch.float32, has_masks=has_masks))
