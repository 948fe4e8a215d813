"""A linear of one row: the weights are read once, as fast as the memory gives them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS, WARPS, STAGES = 8, 512, 4, 3
"""Outputs of a program, inputs that it takes at a time, its warps, and how many loads are under way."""


@triton.jit
def matvec_kernel(
    x, weight, bias, out, num_outputs, num_inputs, HAS_BIAS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Grid: (blocks of outputs,)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    is_row = rows < num_outputs
    begin = weight + rows.to(tl.int64)[:, None] * num_inputs
    acc = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for first in tl.range(0, num_inputs, COLUMNS, num_stages=STAGES):
        inside = first + columns < num_inputs
        w = tl.load(begin + (first + columns)[None, :], mask=is_row[:, None] & inside[None, :], other=0.0)
        value = tl.load(x + first + columns, mask=inside, other=0.0)
        acc += w.to(tl.float32) * value.to(tl.float32)[None, :]
    total = tl.sum(acc, axis=1)
    if HAS_BIAS:
        total += tl.load(bias + rows, mask=is_row, other=0.0).to(tl.float32)
    tl.store(out + rows, total.to(out.dtype.element_ty), mask=is_row)


def matvec(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """See `Ops.linear`, for one row.

    Args:
        x: (1, I), contiguous.
        weight: (O, I), contiguous.
        bias: (O,) or None.
    """
    num_outputs, num_inputs = weight.shape
    out = torch.empty((1, num_outputs), dtype=x.dtype, device=x.device)
    matvec_kernel[(triton.cdiv(num_outputs, ROWS),)](
        x, weight, weight if bias is None else bias, out, num_outputs, num_inputs, HAS_BIAS=bias is not None,
        ROWS=ROWS, COLUMNS=COLUMNS, STAGES=STAGES, num_warps=WARPS,
    )  # fmt: skip
    return out
