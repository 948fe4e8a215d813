"""Kernels that start while the one before them still runs, and wait for it before they read what it wrote.

A decode step is hundreds of kernels of a few microseconds; what each does before it needs the results of the one before
(start, plan, first weights) is done meanwhile.  A kernel lets the next one start only after its own wait: so what it
reads before the wait may be anything that the kernel right before it does not write.

Source: CUDA's programmatic dependent launch, which chips have from compute capability 9.0 on.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def wait_for_previous(EARLY: tl.constexpr):
    """Wait until what the kernel before wrote can be read; then the next may start."""
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()


def starts_early(tensor: Tensor) -> bool:
    """Whether kernels on this tensor may start early; of one without memory, whether they may on the GPU in use."""
    return (tensor.is_cuda or tensor.is_meta) and _has_early_launch()


@functools.cache
def _has_early_launch() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9
