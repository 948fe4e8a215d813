"""The first kernel of a decode pass: which tokens go in, and where their keys and values will be found."""

import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.kernel import kernel


@kernel(varying=("ids", "positions", "slots", "rows"))
def begin_decode_kernel(ids, positions, slots, rows, drawn_ids, table, table_stride, out_ids, out_positions):
    """Grid: (rows of the pass,).  An id of -1 - r stands for the token that was drawn last for row r of the table."""
    index = tl.program_id(0)
    token = tl.load(ids + index).to(tl.int64)
    if token < 0:
        token = tl.load(drawn_ids - 1 - token)
    position = tl.load(positions + index).to(tl.int64)
    tl.store(table + tl.load(rows + index).to(tl.int64) * table_stride + position, tl.load(slots + index))
    tl.store(out_ids + index, token)
    tl.store(out_positions + index, position)


def begin_decode(
    ids: Tensor,
    positions: Tensor,
    slots: Tensor,
    rows: Tensor,
    *,
    drawn_ids: Tensor,
    table: Tensor,
    out_ids: Tensor,
    out_positions: Tensor,
) -> None:
    """Fill in the tokens that only the device knows, and note the new slots in the table.

    Args:
        ids: (B,) int32; -1 - r for the token that was drawn last for row r of the table.
        positions, slots, rows: (B,) int32: of the new tokens.
        drawn_ids: (rows of the table,) int64.
        table: (rows, positions) int32, written.
        out_ids, out_positions: (B,) int64, written.
    """
    begin_decode_kernel[(ids.shape[0],)](
        ids, positions, slots, rows, drawn_ids, table, table.stride(0), out_ids, out_positions, num_warps=1
    )
