"""RMS norm and gated activation in one pass over memory each."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.early_launch import starts_early, wait_for_previous
from sgl_runtime.device.kernels.kernel import kernel


@kernel()
def rms_norm_kernel(x, weight, out, width, eps, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """One row for each program."""
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    factor = tl.load(weight + columns, mask=inside, other=0.0)
    wait_for_previous(EARLY)
    value = tl.load(x + row + columns, mask=inside, other=0.0)
    wide = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / width + eps)
    normed = (wide * scale).to(value.dtype) * factor
    tl.store(out + row + columns, normed.to(value.dtype), mask=inside)


@kernel()
def silu_and_mul_kernel(x, out, width, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """Grid: (rows, blocks of columns)."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    wait_for_previous(EARLY)
    gate = tl.load(x + row * 2 * width + columns, mask=inside, other=0.0)
    up = tl.load(x + row * 2 * width + width + columns, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    activated = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    tl.store(out + row * width + columns, activated * up, mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `Ops.rms_norm`.

    Args:
        x: (..., C).
        weight: (C,).
        eps: Added to the mean square.
    """
    width = x.shape[-1]
    # Of tensors that are no rows one behind another, such as some heads of all, a copy is made.
    rows = x.reshape(-1, width)
    out = torch.empty_like(rows)
    block = triton.next_power_of_2(width)
    early = starts_early(x)
    rms_norm_kernel[(rows.shape[0],)](
        rows, weight, out, width, eps, BLOCK=block, EARLY=early, num_warps=min(16, max(1, block // 512)),
        launch_pdl=early,
    )  # fmt: skip
    return out.view(x.shape)


def silu_and_mul(x: Tensor) -> Tensor:
    """See `Ops.silu_and_mul`."""
    rows, width = x.shape[0], x.shape[-1] // 2
    out = torch.empty((rows, width), dtype=x.dtype, device=x.device)
    block = min(1024, triton.next_power_of_2(width))
    early = starts_early(x)
    silu_and_mul_kernel[(rows, triton.cdiv(width, block))](x, out, width, BLOCK=block, EARLY=early, launch_pdl=early)
    return out
