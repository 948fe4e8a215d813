"""Decode attention of pieces by single warps, for 16-bit keys of usual widths on a GPU.

It computes what `decode_attention.attend_pieces_kernel` does, with a quarter of its instructions: a warp on its own has
nobody to wait for, the queries are the narrow side of both products (scores have a row for each head, results a column,
so that weights are where the second product needs them without moving), slots are read four at a time, and what only
the ends of a piece need is only done there.  Many such programs share a multiprocessor, so that one loads while another
computes.  A large chip stays below its power limit, at its highest clock, where the other kernel drives it into the
limit (`benchmarks/gpu_power.py`); what is saved raises the clock of the matrix products that follow.

Written in Gluon, the layer of Triton where layouts and copies are said.
"""

from collections.abc import Sequence

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from sgl_runtime.device.kernels.decode_attention import MERGE
from sgl_runtime.device.kernels.kernel import kernel
from sgl_runtime.device.kernels.online_softmax import LOG2_E

STAGES = 3
"""Blocks of positions that are there or under way."""

BLOCK_ELEMENTS = 4096
"""Positions of a block times the width of a head."""

MAX_SHARE = 16
"""Most heads that look at one head of keys."""

WIDTHS = (16, 32, 64, 128, 256)
"""Of a head."""


@kernel(varying=("pieces", "counts", "tickets"), make=gluon.jit)
def attend_by_warps_kernel(
    q, keys, values, table, pieces, counts, tickets, out, partial_out, partial_lse,
    q_stride, table_stride, scale,
    SLOT_STRIDE: gl.constexpr, NUM_HEADS: gl.constexpr, SHARE: gl.constexpr, PADDED: gl.constexpr, DIM: gl.constexpr,
    MERGE: gl.constexpr, BLOCK: gl.constexpr, CAP: gl.constexpr, STAGES: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    """Grid: (pieces times groups of heads,), of which the first have something to do; programs of one warp.

    PADDED is SHARE rounded up to 8 or 16; the table's rows are a multiple of 4 positions long.
    """
    GROUPS: gl.constexpr = NUM_HEADS // SHARE
    CHUNKS: gl.constexpr = DIM // 8
    copied: gl.constexpr = gl.BlockedLayout([4, 8], [32 // CHUNKS, CHUNKS], [1, 1], [1, 0])
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [1, 1], [16, 8])
    piece = gl.program_id(0) // GROUPS
    group = gl.program_id(0) % GROUPS
    is_piece = piece < gl.load(counts)
    words = pieces + piece * 8
    row = gl.load(words, mask=is_piece, other=0)
    table_row = gl.load(words + 1, mask=is_piece, other=0).to(gl.int64)
    begin = gl.load(words + 2, mask=is_piece, other=0)
    end = gl.load(words + 3, mask=is_piece, other=0)
    place = gl.load(words + 4, mask=is_piece, other=0)
    context = table + table_row * table_stride
    inside = gl.load(context + begin)
    # Aligned, so that slots can be read four at a time; positions before the piece do not count.
    first = begin // 4 * 4
    places = gl.arange(0, BLOCK, layout=gl.SliceLayout(1, copied))
    slots = _read_slots(context, table_stride, first, end, inside, places, BLOCK)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    if is_piece:
        of_row = q + row.to(gl.int64) * q_stride + group * SHARE * DIM
        head = gl.arange(0, 16, layout=gl.SliceLayout(1, gl.DotOperandLayout(0, mma, 2)))
        lane = gl.arange(0, DIM, layout=gl.SliceLayout(0, gl.DotOperandLayout(0, mma, 2)))
        # Sixteen rows, the first of which are the heads of the group.
        query = gl.load(of_row + head[:, None] * DIM + lane[None, :], mask=(head < SHARE)[:, None], other=0.0)
        top, total, acc = _attend_range(
            query, keys, values, context, table_stride, slots, inside, places, group, first, begin, end, scale,
            copied, mma, SLOT_STRIDE, PADDED, DIM, BLOCK, CAP, STAGES,
        )  # fmt: skip
        _store(
            acc, top, total, row, group, place, out, partial_out, partial_lse, tickets, words, mma, NUM_HEADS, SHARE,
            PADDED, DIM, MERGE,
        )  # fmt: skip


@gluon.jit
def _attend_range(
    query, keys, values, context, table_stride, slots, inside, places, group, first, begin, end, scale,
    copied: gl.constexpr, mma: gl.constexpr, SLOT_STRIDE: gl.constexpr, PADDED: gl.constexpr, DIM: gl.constexpr,
    BLOCK: gl.constexpr, CAP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Attend the positions of a piece, block by block, while later ones are on their way.

    Returns the largest score and the sum of weights of each row, and the (DIM, PADDED) sum of weighted values.
    """
    # What 16 bytes of eight neighbouring rows have in one column lies in different banks.
    rows_of_banks: gl.constexpr = 64 // DIM if DIM < 64 else 1
    swizzled: gl.constexpr = gl.SwizzledSharedLayout(8, rows_of_banks, DIM // 8 if DIM < 64 else 8, [1, 0])
    key_blocks = gl.allocate_shared_memory(keys.dtype.element_ty, [STAGES, BLOCK, DIM], swizzled)
    value_blocks = gl.allocate_shared_memory(keys.dtype.element_ty, [STAGES, BLOCK, DIM], swizzled)
    lanes = group * DIM + gl.arange(0, DIM, layout=gl.SliceLayout(0, copied))
    blocks = gl.cdiv(end - first, BLOCK)
    for stage in gl.static_range(STAGES - 1):
        if stage < blocks:
            _start_copy(keys, values, key_blocks.index(stage), value_blocks.index(stage), slots, lanes, SLOT_STRIDE)
        async_copy.commit_group()
        slots = _read_slots(context, table_stride, first + (stage + 1) * BLOCK, end, inside, places, BLOCK)
    top = gl.full([16], float("-inf"), gl.float32, gl.SliceLayout(1, mma))
    total = gl.zeros([16], gl.float32, gl.SliceLayout(1, mma))
    acc = gl.zeros([DIM, PADDED], gl.float32, mma)
    for index in range(blocks):
        async_copy.wait_group(STAGES - 2)
        ahead = index + STAGES - 1
        if ahead < blocks:
            free = ahead % STAGES
            _start_copy(keys, values, key_blocks.index(free), value_blocks.index(free), slots, lanes, SLOT_STRIDE)
        async_copy.commit_group()
        slots = _read_slots(context, table_stride, first + (ahead + 1) * BLOCK, end, inside, places, BLOCK)
        ready = index % STAGES
        top, total, acc = _attend_block(
            query, key_blocks.index(ready), value_blocks.index(ready), top, total, acc, first + index * BLOCK, begin,
            end, scale * LOG2_E, mma, PADDED, BLOCK, CAP,
        )  # fmt: skip
    async_copy.wait_group(0)
    return top, total, acc


@gluon.jit
def _attend_block(
    query, key_block, value_block, top, total, acc, start, begin, end, factor,
    mma: gl.constexpr, PADDED: gl.constexpr, BLOCK: gl.constexpr, CAP: gl.constexpr,
):  # fmt: skip
    """Add a block of positions to a piece's attention; see `online_softmax.attend_slots`."""
    right: gl.constexpr = gl.DotOperandLayout(1, mma, 2)
    key = key_block.permute((1, 0)).load(right)
    score = mma_v2(query, key, gl.zeros([16, BLOCK], gl.float32, mma)) * factor
    if CAP > 0:
        score = (CAP * LOG2_E) * (1 - 2 / (1 + gl.exp2(score * (2 / CAP))))
    if (start < begin) | (start + BLOCK > end):
        place = start + gl.arange(0, BLOCK, layout=gl.SliceLayout(0, mma))
        score = gl.where(((place >= begin) & (place < end))[None, :], score, float("-inf"))
    higher = gl.maximum(top, gl.max(score, axis=1))
    weight = gl.exp2(score - higher[:, None])
    fade = gl.exp2(top - higher)
    total = total * fade + gl.sum(weight, axis=1)
    acc *= _by_column(fade, mma, PADDED)
    value = value_block.permute((1, 0)).load(gl.DotOperandLayout(0, mma, 2))
    acc = mma_v2(value, _as_right_side(weight.to(query.dtype), right, PADDED, BLOCK), acc)
    return higher, total, acc


@gluon.jit
def _store(
    acc, top, total, row, group, place, out, partial_out, partial_lse, tickets, words,
    mma: gl.constexpr, NUM_HEADS: gl.constexpr, SHARE: gl.constexpr, PADDED: gl.constexpr, DIM: gl.constexpr,
    MERGE: gl.constexpr,
):  # fmt: skip
    """Store what a piece gives; whoever takes the last ticket of a row merges what all its pieces stored."""
    stored: gl.constexpr = gl.BlockedLayout([4, 1], [32, 1], [1, 1], [0, 1])
    result = gl.convert_layout(acc / _by_column(total, mma, PADDED), stored)
    head = gl.arange(0, PADDED, layout=gl.SliceLayout(0, stored))
    lane = gl.arange(0, DIM, layout=gl.SliceLayout(1, stored))
    to = (group * SHARE + head)[None, :] * DIM + lane[:, None]
    is_head = (head < SHARE)[None, :] & (lane < DIM)[:, None]
    if place < 0:
        gl.store(out + row.to(gl.int64) * (NUM_HEADS * DIM) + to, result.to(out.dtype.element_ty), mask=is_head)
    else:
        partial = place.to(gl.int64) * NUM_HEADS
        gl.store(partial_out + partial * DIM + to, result, mask=is_head)
        each = gl.arange(0, 16, layout=gl.SliceLayout(1, mma))
        gl.store(partial_lse + partial + group * SHARE + each, top + gl.log2(total), mask=each < SHARE)
        # All threads have stored before one of them takes a ticket.
        gl.thread_barrier()
        ticket = tickets + row * (NUM_HEADS // SHARE) + group
        if gl.atomic_add(ticket, 1, sem="acq_rel") == gl.load(words + 7) - 1:
            gl.store(ticket, 0)
            _merge(
                partial_out, partial_lse, out, row, gl.load(words + 5), gl.load(words + 6), group,
                NUM_HEADS, SHARE, PADDED, DIM, MERGE, stored,
            )  # fmt: skip


@gluon.jit
def _read_slots(context, width, first, end, inside, places, BLOCK: gl.constexpr):
    """The slots of a block of positions; `inside` for those behind the piece: what lies in theirs may be no number."""
    place = first + places
    slots = gl.load(context + place, mask=place < width, other=0)
    if first + BLOCK > end:
        slots = gl.where(place < end, slots, inside)
    return slots


@gluon.jit
def _start_copy(keys, values, key_block, value_block, slots, lanes, SLOT_STRIDE: gl.constexpr):
    offset = slots.to(gl.int64)[:, None] * SLOT_STRIDE
    async_copy.async_copy_global_to_shared(key_block, (keys + lanes)[None, :] + offset)
    async_copy.async_copy_global_to_shared(value_block, (values + lanes)[None, :] + offset)


@gluon.jit
def _by_column(values, mma: gl.constexpr, PADDED: gl.constexpr):
    """A number of each of 16 rows to one of each of PADDED columns."""
    if PADDED == 8:
        values, _ = gl.split(gl.permute(gl.reshape(values, [2, 8]), [1, 0]))
    return gl.convert_layout(values, gl.SliceLayout(0, mma))[None, :]


@gluon.jit
def _as_right_side(weight, right: gl.constexpr, PADDED: gl.constexpr, BLOCK: gl.constexpr):
    """(16, BLOCK) weights as the right side of a product, (BLOCK, PADDED): every thread holds what it needs."""
    if PADDED == 8:
        weight, _ = gl.split(gl.permute(gl.reshape(weight, [2, 8, BLOCK]), [1, 2, 0]))
    return gl.convert_layout(gl.permute(weight, [1, 0]), right, assert_trivial=True)


@gluon.jit
def _merge(
    partial_out, partial_lse, out, row, first, count, group,
    NUM_HEADS: gl.constexpr, SHARE: gl.constexpr, PADDED: gl.constexpr, DIM: gl.constexpr, MERGE: gl.constexpr,
    layout: gl.constexpr,
):  # fmt: skip
    """Merge the partial results of a row, in their order; other programs wrote most, so the near cache is passed by."""
    each = gl.arange(0, PADDED, layout=gl.SliceLayout(0, layout))
    lane = gl.arange(0, DIM, layout=gl.SliceLayout(1, layout))
    head = group * SHARE + each
    is_head = each < SHARE
    is_lane = is_head[None, :] & (lane < DIM)[:, None]
    top = gl.full([PADDED], float("-inf"), gl.float32, gl.SliceLayout(0, layout))
    total = gl.zeros([PADDED], gl.float32, gl.SliceLayout(0, layout))
    acc = gl.zeros([DIM, PADDED], gl.float32, layout)
    for start in range(0, count, MERGE):
        for part in gl.static_range(MERGE):
            is_part = start + part < count
            place = (first + start + part).to(gl.int64) * NUM_HEADS + head
            lse = gl.load(partial_lse + place, mask=is_head & is_part, other=float("-inf"), cache_modifier=".cg")
            at = partial_out + place[None, :] * DIM + lane[:, None]
            value = gl.load(at, mask=is_lane & is_part, other=0.0, cache_modifier=".cg")
            # Heads that only fill up have no score at all: their weights must not become a number less none.
            higher = gl.maximum(gl.maximum(top, lse), -1e30)
            fade = gl.exp2(top - higher)
            weight = gl.exp2(lse - higher)
            acc = acc * fade[None, :] + value * weight[None, :]
            total = total * fade + weight
            top = higher
    to = (row.to(gl.int64) * NUM_HEADS + head)[None, :] * DIM + lane[:, None]
    total = gl.where(is_head, total, 1.0)
    gl.store(out + to, (acc / total[None, :]).to(out.dtype.element_ty), mask=is_lane)


def can_attend_by_warps(q: Tensor, keys: Tensor, table: Tensor) -> bool:
    """Whether the kernel takes tensors of these shapes and types; see `attend_pieces`."""
    _, num_heads, dim = q.shape
    is_known = q.element_size() == 2 and keys.dtype == q.dtype and dim in WIDTHS
    return is_known and num_heads // keys.shape[1] <= MAX_SHARE and table.stride(0) % 4 == 0


def attend_by_warps(tensors: Sequence[Tensor], *, scale: float, logit_cap: float, early: bool) -> None:
    """See `attend_pieces`.

    Args:
        tensors: The first ones of the kernel's arguments, from `q` to `partial_lse`.
        scale, logit_cap: See there.
        early: Whether the kernel may start while the one before still runs.
    """
    q, keys, _, table, pieces, *_ = tensors
    _, num_heads, dim = q.shape
    groups = keys.shape[1]
    share = num_heads // groups
    attend_by_warps_kernel[(pieces.shape[0] * groups,)](
        *tensors, q.stride(0), table.stride(0), scale, SLOT_STRIDE=keys.stride(0), NUM_HEADS=num_heads, SHARE=share,
        PADDED=8 if share <= 8 else 16, DIM=dim, MERGE=MERGE, BLOCK=min(max(BLOCK_ELEMENTS // dim, 16), 64),
        CAP=logit_cap, STAGES=STAGES, EARLY=early, num_warps=1, launch_pdl=early,
    )  # fmt: skip
