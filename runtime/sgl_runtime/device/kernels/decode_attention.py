"""Attention of one new token a row, its context cut into pieces that fill the chip (split-KV).

A *piece* is a range of one row's context.  Each is attended by a program for each group of heads that share keys; where
a row has several pieces, their outputs are merged by the logarithms of their sums.  Which pieces there are is decided
on the host once for all layers (`attention/decode_pieces.py`).

Source: arXiv:2311.01282 (splitting along the context), arXiv:2205.14135 (online softmax).
"""

import triton
import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.online_softmax import attend_slots

BLOCK, STAGES, WARPS = 64, 3, 4
"""Positions that a program takes at a time, how many such loads are under way, and its warps; measured on an H200."""


@triton.jit
def attend_pieces_kernel(
    q, keys, values, table, row_ids, pieces, counts, out, partial_out, partial_lse,
    q_stride, slot_stride, table_stride, max_pieces, scale,
    NUM_HEADS: tl.constexpr, SHARE: tl.constexpr, PADDED: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr,
    BLOCK: tl.constexpr, CAP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Grid: (pieces, groups of heads).  `pieces` is (4, max_pieces): row, begin, end, place of the partial result.

    A place of -1 means that the piece is its row's only one: its result is final.  SHARE heads look at one head of
    keys, PADDED is SHARE rounded up for the matrix unit, LANES is DIM rounded up to a power of 2.
    """
    piece = tl.program_id(0)
    group = tl.program_id(1)
    if piece < tl.load(counts):
        row = tl.load(pieces + piece)
        begin = tl.load(pieces + max_pieces + piece)
        end = tl.load(pieces + 2 * max_pieces + piece)
        place = tl.load(pieces + 3 * max_pieces + piece)
        context = table + tl.load(row_ids + row).to(tl.int64) * table_stride
        heads = tl.arange(0, PADDED)
        lanes = tl.arange(0, LANES)
        is_head = heads < SHARE
        head = group * SHARE + heads
        q_mask = is_head[:, None] & (lanes < DIM)[None, :]
        query = tl.load(q + row.to(tl.int64) * q_stride + head[:, None] * DIM + lanes[None, :], mask=q_mask, other=0.0)
        offsets = group * DIM + lanes
        top = tl.full([PADDED], float("-inf"), dtype=tl.float32)
        total = tl.zeros([PADDED], dtype=tl.float32)
        acc = tl.zeros([PADDED, LANES], dtype=tl.float32)
        for start in tl.range(begin, end, BLOCK, num_stages=STAGES):
            places = start + tl.arange(0, BLOCK)
            inside = places < end
            slots = tl.load(context + places, mask=inside, other=0).to(tl.int64)
            kv_mask = inside[:, None] & (lanes < DIM)[None, :]
            top, total, acc = attend_slots(
                query, top, total, acc, slots, kv_mask, inside[None, :], keys, values, offsets, slot_stride, scale,
                CAP=CAP, MASKED=True,
            )  # fmt: skip
        result = acc / total[:, None]
        if place < 0:
            target = out + row.to(tl.int64) * NUM_HEADS * DIM + head[:, None] * DIM + lanes[None, :]
            tl.store(target, result.to(out.dtype.element_ty), mask=q_mask)
        else:
            first = place.to(tl.int64) * NUM_HEADS
            tl.store(partial_out + (first + head)[:, None] * DIM + lanes[None, :], result, mask=q_mask)
            tl.store(partial_lse + first + head, top + tl.log2(total), mask=is_head)


@triton.jit
def merge_pieces_kernel(
    firsts, num_pieces, partial_out, partial_lse, out,
    NUM_HEADS: tl.constexpr, SHARE: tl.constexpr, PADDED: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Grid: (rows, groups of heads).  Rows whose only piece is final are left alone."""
    row = tl.program_id(0)
    count = tl.load(num_pieces + row)
    if count > 1:
        first = tl.load(firsts + row).to(tl.int64)
        heads = tl.arange(0, PADDED)
        is_head = heads < SHARE
        head = tl.program_id(1) * SHARE + heads
        lanes = tl.arange(0, LANES)
        inside = is_head[:, None] & (lanes < DIM)[None, :]
        top = tl.full([PADDED], float("-inf"), dtype=tl.float32)
        total = tl.zeros([PADDED], dtype=tl.float32)
        acc = tl.zeros([PADDED, LANES], dtype=tl.float32)
        for piece in range(count):
            place = (first + piece) * NUM_HEADS + head
            lse = tl.load(partial_lse + place, mask=is_head, other=0.0)
            value = tl.load(partial_out + place[:, None] * DIM + lanes[None, :], mask=inside, other=0.0)
            higher = tl.maximum(top, lse)
            fade = tl.exp2(top - higher)
            weight = tl.exp2(lse - higher)
            acc = acc * fade[:, None] + value * weight[:, None]
            total = total * fade + weight
            top = higher
        target = out + (row.to(tl.int64) * NUM_HEADS + head)[:, None] * DIM + lanes[None, :]
        tl.store(target, (acc / total[:, None]).to(out.dtype.element_ty), mask=inside)


def attend_pieces(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    table: Tensor,
    row_ids: Tensor,
    pieces: Tensor,
    counts: Tensor,
    firsts: Tensor,
    num_pieces: Tensor,
    partial_out: Tensor,
    partial_lse: Tensor,
    out: Tensor,
    scale: float,
    logit_cap: float = 0.0,
) -> None:
    """Attend every row's context.

    Args:
        q: (B, H, D), rotated; heads and lanes contiguous.
        keys, values: (slots, G, D) of one layer; the last two dimensions contiguous.
        table: (rows, positions) int32 slots.
        row_ids: (B,) int32 row of the table for each row of the pass.
        pieces: (4, N) int32: row of the pass, begin, end, and place of the partial result or -1.
        counts: (1,) int32, how many of the N pieces there are.
        firsts, num_pieces: (B,) int32: the first place of a row's partial results, and how many pieces it has.
        partial_out, partial_lse: (places, H, D) and (places, H) float32, scratch.
        out: (B, H, D), contiguous.
        scale: Of the products of queries and keys.
        logit_cap: Bound on them by tanh; 0 for none.
    """
    rows, num_heads, dim = q.shape
    groups = keys.shape[1]
    share = num_heads // groups
    lanes = triton.next_power_of_2(dim)
    attend_pieces_kernel[(pieces.shape[1], groups)](
        q, keys, values, table, row_ids, pieces, counts, out, partial_out, partial_lse,
        q.stride(0), keys.stride(0), table.stride(0), pieces.shape[1], scale,
        NUM_HEADS=num_heads, SHARE=share, PADDED=max(16, triton.next_power_of_2(share)), DIM=dim, LANES=lanes,
        BLOCK=BLOCK, CAP=logit_cap, STAGES=STAGES, num_warps=WARPS,
    )  # fmt: skip
    merge_pieces_kernel[(rows, groups)](
        firsts, num_pieces, partial_out, partial_lse, out, NUM_HEADS=num_heads, SHARE=share,
        PADDED=triton.next_power_of_2(share), DIM=dim, LANES=lanes, num_warps=1,
    )  # fmt: skip
