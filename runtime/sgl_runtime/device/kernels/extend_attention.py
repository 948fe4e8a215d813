"""Causal attention of several new tokens a row over all of the row's context in the pool.

Keys and values of the new tokens have been written to the pool before.  A program takes a tile of queries: tokens times
the heads that share keys, so that these are read once for all of them.  Where another kernel has attended the first
positions of rows, since they share them, this one goes on from there.

Source: arXiv:2205.14135, arXiv:2307.08691; parts one behind another, arXiv:2402.05099.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.kernel import kernel
from sgl_runtime.device.kernels.online_softmax import attend_slots
from sgl_runtime.device.kernels.shared_memory import Tile, fitting_tile

QUERIES, BLOCK, STAGES, WARPS = 128, 64, 3, 8
"""Rows of queries and positions of a tile, how many loads are under way, and its warps; measured on an H200."""

WIDE_HEAD_BYTES, WIDE_HEAD_STAGES = 256, 2
"""Of heads of more bytes fewer loads are under way: shared memory has no room for more."""


@triton.jit
def _attend_block(
    query, top, total, acc, slots, start, end, limits, context, keys, values, offsets, lanes, slot_stride, scale,
    DIM: tl.constexpr, BLOCK: tl.constexpr, CAP: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Attend a block whose slots are known, and read those of the next."""
    places = start + tl.arange(0, BLOCK)
    next_slots = tl.load(context + places + BLOCK, mask=places + BLOCK < end, other=0)
    kv_mask = (lanes < DIM)[None, :]
    if MASKED:
        kv_mask = kv_mask & (places < end)[:, None]
    top, total, acc = attend_slots(
        query, top, total, acc, slots.to(tl.int64), kv_mask, places[None, :] <= limits[:, None], keys, values, offsets,
        slot_stride, scale, CAP=CAP, MASKED=MASKED,
    )  # fmt: skip
    return top, total, acc, next_slots


@kernel(
    varying=("row_ids", "tiles", "token_starts", "prefix_lens", "extend_lens", "begins", "max_tiles", "begun_start")
)
def extend_kernel(
    q, keys, values, table, row_ids, tiles, token_starts, prefix_lens, extend_lens, begins, begun_out, begun_lse, out,
    q_stride, slot_stride, table_stride, max_tiles, begun_start, scale,
    NUM_HEADS: tl.constexpr, SHARE: tl.constexpr, PADDED: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr,
    TOKENS: tl.constexpr, BLOCK: tl.constexpr, CAP: tl.constexpr, STAGES: tl.constexpr, BEGUN: tl.constexpr,
):  # fmt: skip
    """Grid: (tiles, groups of heads).  `tiles` is (2, max_tiles): row of the pass, and the tile's first new token.

    A tile's rows are TOKENS tokens times PADDED heads, of which SHARE count.  With BEGUN rows whose entry in `begins`
    is not 0 go on from there.
    """
    # The last tiles of a row see the longest contexts: they start first.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    group = tl.program_id(1)
    row = tl.load(tiles + tile)
    first = tl.load(tiles + max_tiles + tile)
    num_new = tl.load(extend_lens + row)
    prefix = tl.load(prefix_lens + row)
    context = table + tl.load(row_ids + row).to(tl.int64) * table_stride
    ROWS: tl.constexpr = TOKENS * PADDED
    index = tl.arange(0, ROWS)
    token = first + index // PADDED
    head = group * SHARE + index % PADDED
    lanes = tl.arange(0, LANES)
    q_mask = ((token < num_new) & (index % PADDED < SHARE))[:, None] & (lanes < DIM)[None, :]
    at = (tl.load(token_starts + row) + token).to(tl.int64)
    query = tl.load(q + at[:, None] * q_stride + head[:, None] * DIM + lanes[None, :], mask=q_mask, other=0.0)
    limits = prefix + token
    offsets = group * DIM + lanes
    top = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([ROWS], dtype=tl.float32)
    acc = tl.zeros([ROWS, LANES], dtype=tl.float32)
    begin = 0
    if BEGUN:
        begin = tl.load(begins + row)
        # Elsewhere this is masked, and the tile begins with nothing.
        before = (at - begun_start) * NUM_HEADS + head
        is_begun = (token < num_new) & (index % PADDED < SHARE) & (begin > 0)
        top = tl.load(begun_lse + before, mask=is_begun, other=float("-inf"))
        # What is begun has been divided by its weights, which add up to exp2 of its log-sum-exp.
        total = tl.where(is_begun, 1.0, 0.0)
        acc_mask = is_begun[:, None] & (lanes < DIM)[None, :]
        acc = tl.load(begun_out + before[:, None] * DIM + lanes[None, :], mask=acc_mask, other=0.0).to(tl.float32)
    end = prefix + tl.minimum(first + TOKENS, num_new)
    seen_by_all = begin + (prefix + first + 1 - begin) // BLOCK * BLOCK
    # The slots of a block are read while the one before is attended: what depends on them can then be loaded far ahead.
    slots = tl.load(context + begin + tl.arange(0, BLOCK), mask=begin + tl.arange(0, BLOCK) < end, other=0)
    for start in tl.range(begin, seen_by_all, BLOCK, num_stages=STAGES):
        top, total, acc, slots = _attend_block(
            query, top, total, acc, slots, start, end, limits, context, keys, values, offsets, lanes, slot_stride,
            scale, DIM=DIM, BLOCK=BLOCK, CAP=CAP, MASKED=False,
        )  # fmt: skip
    for start in tl.range(seen_by_all, end, BLOCK, num_stages=STAGES):
        top, total, acc, slots = _attend_block(
            query, top, total, acc, slots, start, end, limits, context, keys, values, offsets, lanes, slot_stride,
            scale, DIM=DIM, BLOCK=BLOCK, CAP=CAP, MASKED=True,
        )  # fmt: skip
    result = (acc / total[:, None]).to(out.dtype.element_ty)
    target = out + at[:, None] * NUM_HEADS * DIM + head[:, None] * DIM + lanes[None, :]
    tl.store(target, result, mask=q_mask)


def tile_tokens(share: int) -> int:
    """Tokens of a tile, for heads that share keys in groups of `share`: a power of 2."""
    return max(1, QUERIES // int(triton.next_power_of_2(share)))


@dataclass(frozen=True)
class BegunRows:
    """What has been attended of some rows before, whose tokens follow one another in the pass.

    Attributes:
        begins: (B,) int32, how many of its first positions have been attended for each row of the pass; 0 for others.
        start: The first token of those rows.
        out: (T', H, D) of their tokens, contiguous.
        lse: (T', H) float32 logarithms, in powers of 2, of the sums of their weights; contiguous.
    """

    begins: Tensor
    start: int
    out: Tensor
    lse: Tensor


def attend_extend(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    table: Tensor,
    row_ids: Tensor,
    tiles: Tensor,
    token_starts: Tensor,
    prefix_lens: Tensor,
    extend_lens: Tensor,
    out: Tensor,
    scale: float,
    logit_cap: float = 0.0,
    begun: BegunRows | None = None,
) -> None:
    """Attend all new tokens of a pass.

    Args:
        q: (T, H, D), rotated; heads and lanes contiguous.
        keys, values: (slots, G, D) of one layer; the last two dimensions contiguous.
        table: (rows, positions) int32 slots.
        row_ids: (B,) int32 row of the table for each row of the pass.
        tiles: (2, N) int32: row of the pass and first new token of each tile of `tile_tokens` tokens.
        token_starts: (B,) int32, where a row's new tokens begin among the T.
        prefix_lens, extend_lens: (B,) int32.
        out: (T, H, D), contiguous.
        scale: Of the products of queries and keys.
        logit_cap: Bound on them by tanh; 0 for none.
        begun: What has been attended before; None: nothing.
    """
    _, num_heads, dim = q.shape
    groups = keys.shape[1]
    share = num_heads // groups
    lanes = triton.next_power_of_2(dim)
    stages = STAGES if lanes * q.element_size() <= WIDE_HEAD_BYTES else WIDE_HEAD_STAGES
    tile = fitting_tile(Tile(QUERIES, BLOCK, stages), query=q, lanes=lanes)
    begins, start, begun_out, begun_lse = row_ids, 0, out, out
    if begun is not None:
        begins, start, begun_out, begun_lse = begun.begins, begun.start, begun.out, begun.lse
    extend_kernel[(tiles.shape[1], groups)](
        q, keys, values, table, row_ids, tiles, token_starts, prefix_lens, extend_lens, begins, begun_out, begun_lse,
        out, q.stride(0), keys.stride(0), table.stride(0), tiles.shape[1], start, scale,
        NUM_HEADS=num_heads, SHARE=share, PADDED=triton.next_power_of_2(share), DIM=dim,
        LANES=lanes, TOKENS=tile_tokens(share), BLOCK=tile.block, CAP=logit_cap, STAGES=tile.stages,
        BEGUN=begun is not None, num_warps=WARPS,
    )  # fmt: skip
