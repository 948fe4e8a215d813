"""Decode attention over a range of context that rows share: its keys and values are read once for a tile of rows.

What each row has of its own is attended by `decode_attention`; the parts are merged by the logarithms of their sums.

Source: arXiv:2402.05099 (attention over shared prefixes), arXiv:2205.14135.
"""

import triton
import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.kernel import kernel
from sgl_runtime.device.kernels.online_softmax import attend_slots
from sgl_runtime.device.kernels.shared_memory import Tile, fitting_tile

QUERIES, BLOCK, STAGES, WARPS = 64, 64, 3, 4
"""Rows of queries and positions of a tile, how many loads are under way, and its warps; measured on an H200."""


@kernel(varying=("row_ids", "tiles", "num_tiles"))
def attend_shared_kernel(
    q, keys, values, table, row_ids, tiles, num_tiles, partial_out, partial_lse,
    q_stride, slot_stride, table_stride, scale,
    NUM_HEADS: tl.constexpr, SHARE: tl.constexpr, PADDED: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr,
    MEMBERS: tl.constexpr, BLOCK: tl.constexpr, CAP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Grid: (tiles, groups of heads).

    A tile is begin, end, then MEMBERS rows of the pass (-1 for none), then MEMBERS places of their partial results.
    """
    tile = tl.program_id(0)
    group = tl.program_id(1)
    if tile < tl.load(num_tiles):
        words = tiles + tile * (2 + 2 * MEMBERS)
        begin = tl.load(words)
        end = tl.load(words + 1)
        index = tl.arange(0, MEMBERS * PADDED)
        row = tl.load(words + 2 + index // PADDED)
        place = tl.load(words + 2 + MEMBERS + index // PADDED)
        is_query = (row >= 0) & (index % PADDED < SHARE)
        head = group * SHARE + index % PADDED
        lanes = tl.arange(0, LANES)
        q_mask = is_query[:, None] & (lanes < DIM)[None, :]
        query = tl.load(q + row.to(tl.int64)[:, None] * q_stride + head[:, None] * DIM + lanes[None, :],
                        mask=q_mask, other=0.0)  # fmt: skip
        # All members have the same slots here: those of the first are as good as any.
        context = table + tl.load(row_ids + tl.load(words + 2)).to(tl.int64) * table_stride
        offsets = group * DIM + lanes
        top = tl.full([MEMBERS * PADDED], float("-inf"), dtype=tl.float32)
        total = tl.zeros([MEMBERS * PADDED], dtype=tl.float32)
        acc = tl.zeros([MEMBERS * PADDED, LANES], dtype=tl.float32)
        # The slots of a block are read while the one before is attended: what depends on them is then loaded far ahead.
        places = begin + tl.arange(0, BLOCK)
        slots = tl.load(context + places, mask=places < end, other=0)
        for start in tl.range(begin, end, BLOCK, num_stages=STAGES):
            places = start + tl.arange(0, BLOCK)
            inside = places < end
            next_slots = tl.load(context + places + BLOCK, mask=places + BLOCK < end, other=0)
            kv_mask = inside[:, None] & (lanes < DIM)[None, :]
            top, total, acc = attend_slots(
                query, top, total, acc, slots.to(tl.int64), kv_mask, inside[None, :], keys, values, offsets,
                slot_stride, scale, CAP=CAP, MASKED=True,
            )  # fmt: skip
            slots = next_slots
        first = place.to(tl.int64) * NUM_HEADS + head
        tl.store(partial_out + first[:, None] * DIM + lanes[None, :], acc / total[:, None], mask=q_mask)
        tl.store(partial_lse + first, top + tl.log2(total), mask=is_query)


def members_of_tile(share: int) -> int:
    """Rows of a tile, for heads that share keys in groups of `share`: a power of 2."""
    return max(1, QUERIES // int(triton.next_power_of_2(share)))


def attend_shared(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    table: Tensor,
    row_ids: Tensor,
    tiles: Tensor,
    num_tiles: Tensor,
    partial_out: Tensor,
    partial_lse: Tensor,
    scale: float,
    logit_cap: float = 0.0,
) -> None:
    """Attend ranges that rows share; the partial results are merged with the others of each row.

    Args:
        q: (B, H, D), rotated; heads and lanes contiguous.
        keys, values: (slots, G, D) of one layer; the last two dimensions contiguous.
        table: (rows, positions) int32 slots.
        row_ids: (B,) int32 row of the table for each row of the pass.
        tiles: (N, 2 + 2 M) int32: begin, end, M rows of the pass or -1, M places; M from `members_of_tile`.
        num_tiles: (1,) int32, how many of the N tiles there are.
        partial_out, partial_lse: (places, H, D) and (places, H) float32.
        scale: Of the products of queries and keys.
        logit_cap: Bound on them by tanh; 0 for none.
    """
    _, num_heads, dim = q.shape
    groups = keys.shape[1]
    share = num_heads // groups
    lanes = triton.next_power_of_2(dim)
    tile = fitting_tile(Tile(QUERIES, BLOCK, STAGES), query=q, lanes=lanes)
    attend_shared_kernel[(tiles.shape[0], groups)](
        q, keys, values, table, row_ids, tiles, num_tiles, partial_out, partial_lse,
        q.stride(0), keys.stride(0), table.stride(0), scale,
        NUM_HEADS=num_heads, SHARE=share, PADDED=triton.next_power_of_2(share), DIM=dim,
        LANES=lanes, MEMBERS=members_of_tile(share), BLOCK=tile.block, CAP=logit_cap, STAGES=tile.stages,
        num_warps=WARPS,
    )  # fmt: skip
