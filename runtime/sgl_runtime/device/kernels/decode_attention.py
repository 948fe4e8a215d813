"""Attention of one new token a row, its context cut into pieces that fill the chip (split-KV).

A *piece* is a range of one row's context.  Each is attended by a program for each group of heads that share keys; where
a row has several pieces, the program that is done last merges their outputs by the logarithms of their sums.  Which
pieces there are is decided on the host once for all layers (`attention/decode_pieces.py`).

Source: arXiv:2311.01282 (splitting along the context), arXiv:2205.14135 (online softmax).
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.early_launch import starts_early, wait_for_previous
from sgl_runtime.device.kernels.kernel import kernel
from sgl_runtime.device.kernels.online_softmax import attend_slots

BLOCK, STAGES = 32, 3
"""Positions that a program takes at a time, and how many such loads are under way; measured on an H200."""

PIECE_WORDS = 8
"""Of a piece: row of the pass, row of the table, begin, end, place of its result or -1 if it is its row's only one,
first place of the row, how many results the row has, how many of them are of pieces."""

MERGE = 8
"""Partial results whose loads are under way at a time."""


GLUON_OF_TRITON = "3.6."
"""Versions of Triton whose Gluon runs `warp_attention.py` as measured: that part of Triton still changes."""


@kernel(varying=("pieces", "counts", "tickets"))
def attend_pieces_kernel(
    q, keys, values, table, pieces, counts, tickets, out, partial_out, partial_lse,
    q_stride, slot_stride, table_stride, scale,
    NUM_HEADS: tl.constexpr, SHARE: tl.constexpr, PADDED: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr,
    MERGED: tl.constexpr, MERGE: tl.constexpr, BLOCK: tl.constexpr, CAP: tl.constexpr, STAGES: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Grid: (pieces times groups of heads,), of which the first have something to do.

    A captured launch is as large as any of its passes; `counts` says how many pieces there are.  SHARE heads look at
    one head of keys; PADDED is SHARE rounded up for the matrix unit, MERGED to a power of 2, LANES is DIM rounded up to
    one.
    """
    GROUPS: tl.constexpr = NUM_HEADS // SHARE
    piece = tl.program_id(0) // GROUPS
    group = tl.program_id(0) % GROUPS
    is_piece = piece < tl.load(counts)
    words = pieces + piece * 8
    row = tl.load(words, mask=is_piece, other=0)
    table_row = tl.load(words + 1, mask=is_piece, other=0).to(tl.int64)
    begin = tl.load(words + 2, mask=is_piece, other=0)
    end = tl.load(words + 3, mask=is_piece, other=0)
    place = tl.load(words + 4, mask=is_piece, other=0)
    context = table + table_row * table_stride
    # The slots of a block are read while the one before is attended: what depends on them can then be loaded far ahead.
    places = begin + tl.arange(0, BLOCK)
    slots = tl.load(context + places, mask=places < end, other=0)
    wait_for_previous(EARLY)
    if is_piece:
        heads = tl.arange(0, PADDED)
        lanes = tl.arange(0, LANES)
        is_head = heads < SHARE
        is_lane = lanes < DIM
        head = group * SHARE + heads
        at = q + row.to(tl.int64) * q_stride + head[:, None] * DIM + lanes[None, :]
        query = tl.load(at, mask=is_head[:, None] & is_lane[None, :], other=0.0)
        top = tl.full([PADDED], float("-inf"), dtype=tl.float32)
        total = tl.zeros([PADDED], dtype=tl.float32)
        acc = tl.zeros([PADDED, LANES], dtype=tl.float32)
        for start in tl.range(begin, end, BLOCK, num_stages=STAGES):
            inside = start + tl.arange(0, BLOCK) < end
            places = start + BLOCK + tl.arange(0, BLOCK)
            next_slots = tl.load(context + places, mask=places < end, other=0)
            top, total, acc = attend_slots(
                query, top, total, acc, slots.to(tl.int64), inside[:, None] & is_lane[None, :], inside[None, :], keys,
                values, group * DIM + lanes, slot_stride, scale, CAP=CAP, MASKED=True,
            )  # fmt: skip
            slots = next_slots
        partial = tl.maximum(place, 0).to(tl.int64) * NUM_HEADS
        _store(
            acc / total[:, None], top + tl.log2(total), head, lanes, is_head, is_lane, place,
            out + row.to(tl.int64) * NUM_HEADS * DIM, partial_out + partial * DIM, partial_lse + partial, DIM=DIM,
        )  # fmt: skip
        if place >= 0:
            # All threads of this program have stored before one of them takes a ticket; whoever takes a row's last
            # merges what all its pieces stored.
            tl.debug_barrier()
            ticket = tickets + row * GROUPS + group
            if tl.atomic_add(ticket, 1, sem="acq_rel") == tl.load(words + 7) - 1:
                tl.store(ticket, 0)
                _merge(
                    partial_out, partial_lse, out, row, tl.load(words + 5), tl.load(words + 6), group,
                    NUM_HEADS=NUM_HEADS, SHARE=SHARE, MERGED=MERGED, DIM=DIM, LANES=LANES, MERGE=MERGE,
                )  # fmt: skip


@triton.jit
def _store(result, lse, head, lanes, is_head, is_lane, place, out, partial_out, partial_lse, DIM: tl.constexpr):
    """Store what a piece gives for some heads: it is final where its row has no other."""
    at = head[:, None] * DIM + lanes[None, :]
    inside = is_head[:, None] & is_lane[None, :]
    if place < 0:
        tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(partial_out + at, result, mask=inside)
        tl.store(partial_lse + head, lse, mask=is_head)


@triton.jit
def _merge(
    partial_out, partial_lse, out, row, first, count, group,
    NUM_HEADS: tl.constexpr, SHARE: tl.constexpr, MERGED: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr,
    MERGE: tl.constexpr,
):  # fmt: skip
    """Merge the partial results of a row; other programs wrote most of them, so they are read past the near cache."""
    heads = tl.arange(0, MERGED)
    head = group * SHARE + heads
    lanes = tl.arange(0, LANES)
    is_head = heads < SHARE
    is_lane = is_head[:, None] & (lanes < DIM)[None, :]
    top = tl.full([MERGED], float("-inf"), dtype=tl.float32)
    total = tl.zeros([MERGED], dtype=tl.float32)
    acc = tl.zeros([MERGED, LANES], dtype=tl.float32)
    for start in tl.range(0, count, MERGE):
        for part in tl.static_range(MERGE):
            is_part = start + part < count
            place = (first + start + part).to(tl.int64) * NUM_HEADS + head
            lse = tl.load(partial_lse + place, mask=is_head & is_part, other=float("-inf"), cache_modifier=".cg")
            at = partial_out + place[:, None] * DIM + lanes[None, :]
            value = tl.load(at, mask=is_lane & is_part, other=0.0, cache_modifier=".cg")
            # Heads that only fill up have no score at all: their weights must not become a number less none.
            higher = tl.maximum(tl.maximum(top, lse), -1e30)
            fade = tl.exp2(top - higher)
            weight = tl.exp2(lse - higher)
            acc = acc * fade[:, None] + value * weight[:, None]
            total = total * fade + weight
            top = higher
    target = out + (row.to(tl.int64) * NUM_HEADS + head)[:, None] * DIM + lanes[None, :]
    total = tl.where(is_head, total, 1.0)
    tl.store(target, (acc / total[:, None]).to(out.dtype.element_ty), mask=is_lane)


def attend_pieces(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    table: Tensor,
    pieces: Tensor,
    counts: Tensor,
    tickets: Tensor,
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
        pieces: (N, 8) int32, see `PIECE_WORDS`.
        counts: (2,) int32: how many of the N pieces there are, and something else.
        tickets: (B, G) int32, zeros, which they are again afterwards: how many pieces of a row are done.
        partial_out, partial_lse: (places, H, D) and (places, H) float32, scratch.
        out: (B, H, D), contiguous.
        scale: Of the products of queries and keys.
        logit_cap: Bound on them by tanh; 0 for none.
    """
    early = starts_early(q)
    tensors = (q, keys, values, table, pieces, counts, tickets, out, partial_out, partial_lse)
    if (q.is_cuda or q.is_meta) and has_gluon():
        # Imported here: other versions of Triton may have no Gluon, or another.
        from sgl_runtime.device.kernels.warp_attention import attend_by_warps, can_attend_by_warps

        if can_attend_by_warps(q, keys, table):
            attend_by_warps(tensors, scale=scale, logit_cap=logit_cap, early=early)
            return
    _, num_heads, dim = q.shape
    groups = keys.shape[1]
    share = num_heads // groups
    attend_pieces_kernel[(pieces.shape[0] * groups,)](
        *tensors, q.stride(0), keys.stride(0), table.stride(0), scale,
        NUM_HEADS=num_heads, SHARE=share, PADDED=max(16, triton.next_power_of_2(share)), DIM=dim,
        LANES=triton.next_power_of_2(dim), MERGED=triton.next_power_of_2(share), MERGE=MERGE, BLOCK=BLOCK,
        CAP=logit_cap, STAGES=STAGES, EARLY=early, num_warps=2, launch_pdl=early,
    )  # fmt: skip


@functools.cache
def has_gluon() -> bool:
    """Whether kernels in Gluon can be used on the GPU there is."""
    if not (torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8):
        return False
    return str(triton.__version__).startswith(GLUON_OF_TRITON)
