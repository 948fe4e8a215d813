"""The slots of the contexts of some rows, one row behind another, as kernels of other libraries want them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.kernel import kernel

BLOCK = 1024
"""Slots that a program copies."""


@kernel(varying=("row_ids", "begins"))
def gather_slots_kernel(table, row_ids, begins, out, table_stride, BLOCK: tl.constexpr):
    """Grid: (rows, blocks of positions)."""
    row = tl.program_id(0)
    begin = tl.load(begins + row)
    count = tl.load(begins + row + 1) - begin
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    slots = tl.load(table + tl.load(row_ids + row).to(tl.int64) * table_stride + places, mask=inside, other=0)
    tl.store(out + begin + places, slots, mask=inside)


def gather_slots(table: Tensor, row_ids: Tensor, begins: Tensor, *, total: int, longest: int) -> Tensor:
    """Gather the slots of contexts.

    Args:
        table: (rows, positions) int32.
        row_ids: (B,) int32 rows of the table.
        begins: (B + 1,) int32: where each row's slots begin in the result, and where the last one's end.
        total: Slots in all.
        longest: Length of the longest context.

    Returns:
        (total,) int32.
    """
    out = torch.empty(total, dtype=torch.int32, device=table.device)
    gather_slots_kernel[(len(row_ids), triton.cdiv(longest, BLOCK))](
        table, row_ids, begins, out, table.stride(0), BLOCK=BLOCK
    )
    return out
