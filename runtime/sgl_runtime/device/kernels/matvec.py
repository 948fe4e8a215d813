"""A linear of one row, with what stands before and behind it: the weights are read once, as fast as the memory gives.

Before it may stand an RMS norm of the input; behind it the gate of a feed-forward block or the sum with the residual
stream.  Each would be a kernel of its own that takes longer to start than to run.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.early_launch import starts_early, wait_for_previous
from sgl_runtime.device.kernels.kernel import kernel

ROWS, COLUMNS, WARPS, STAGES = 4, 1024, 4, 2
"""Outputs of a program, inputs that it takes at a time, its warps, and how many loads are under way."""


@triton.jit
def _weights(weight, rows, columns, num_outputs, num_inputs):
    inside = (rows < num_outputs)[:, None] & (columns < num_inputs)[None, :]
    return tl.load(weight + rows.to(tl.int64)[:, None] * num_inputs + columns[None, :], mask=inside, other=0.0)


@triton.jit
def _input(x, norm_weight, columns, num_inputs, HAS_NORM: tl.constexpr):
    """Inputs, times the weights of the norm, and the squares that its scale is made of; float32."""
    value = tl.load(x + columns, mask=columns < num_inputs, other=0.0).to(tl.float32)
    square = value * value
    if HAS_NORM:
        value *= tl.load(norm_weight + columns, mask=columns < num_inputs, other=0.0).to(tl.float32)
    return value, square


@kernel()
def matvec_kernel(
    x, norm_weight, weight, bias, residual, out, num_outputs, num_inputs, eps,
    HAS_NORM: tl.constexpr, HAS_BIAS: tl.constexpr, ADD: tl.constexpr, GATED: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Grid: (blocks of outputs,).  With GATED the weights of the gates come first, then as many of what they gate."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    is_row = rows < num_outputs
    gated = weight + tl.cast(num_outputs, tl.int64) * num_inputs
    # The first weights are on their way before the input is there.
    w = _weights(weight, rows, columns, num_outputs, num_inputs)
    if GATED:
        up = _weights(gated, rows, columns, num_outputs, num_inputs)
    wait_for_previous(EARLY)
    value, square = _input(x, norm_weight, columns, num_inputs, HAS_NORM)
    acc = w.to(tl.float32) * value[None, :]
    if GATED:
        acc_up = up.to(tl.float32) * value[None, :]
    for first in tl.range(COLUMNS, num_inputs, COLUMNS, num_stages=STAGES):
        w = _weights(weight, rows, first + columns, num_outputs, num_inputs)
        value, more = _input(x, norm_weight, first + columns, num_inputs, HAS_NORM)
        square += more
        acc += w.to(tl.float32) * value[None, :]
        if GATED:
            up = _weights(gated, rows, first + columns, num_outputs, num_inputs)
            acc_up += up.to(tl.float32) * value[None, :]
    total = tl.sum(acc, axis=1)
    scale = 1.0
    if HAS_NORM:
        scale = tl.rsqrt(tl.sum(square, axis=0) / num_inputs + eps)
    total *= scale
    if HAS_BIAS:
        total += tl.load(bias + rows, mask=is_row, other=0.0).to(tl.float32)
    if GATED:
        linear = tl.sum(acc_up, axis=1) * scale
        if HAS_BIAS:
            linear += tl.load(bias + num_outputs + rows, mask=is_row, other=0.0).to(tl.float32)
        total = total / (1.0 + tl.exp(-total)) * linear
    if ADD:
        total += tl.load(residual + rows, mask=is_row, other=0.0).to(tl.float32)
    tl.store(out + rows, total.to(out.dtype.element_ty), mask=is_row)


def matvec(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    norm: tuple[Tensor, float] | None = None,
    residual: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """See `Ops.linear`, `Ops.add_linear` and `Ops.gated_linear`, for one row.

    Args:
        x: (1, I), contiguous.
        weight: (O, I), contiguous; with `gated` (2 O, I), gates first.
        bias: As many as the weight has rows, or None.
        norm: Weights (I,) and epsilon of an RMS norm of x; None: x is taken as it is.
        residual: (1, O), contiguous, added and overwritten with the sum; None: nothing is added.
        gated: Whether outputs are SiLU of the gates times the others.

    Returns:
        (1, O).
    """
    num_outputs, num_inputs = weight.shape[0] // (2 if gated else 1), weight.shape[1]
    out = torch.empty((1, num_outputs), dtype=x.dtype, device=x.device) if residual is None else residual
    norm_weight, eps = (x, 0.0) if norm is None else norm
    early = starts_early(x)
    matvec_kernel[(triton.cdiv(num_outputs, ROWS),)](
        x, norm_weight, weight, weight if bias is None else bias, out, out, num_outputs, num_inputs, eps,
        HAS_NORM=norm is not None, HAS_BIAS=bias is not None, ADD=residual is not None, GATED=gated, ROWS=ROWS,
        COLUMNS=COLUMNS, STAGES=STAGES, EARLY=early, num_warps=WARPS, launch_pdl=early,
    )  # fmt: skip
    return out
