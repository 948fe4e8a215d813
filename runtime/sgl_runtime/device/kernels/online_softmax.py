"""One step of attention over positions at which any slots lie: what all attention kernels do again and again."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def attend_slots(
    query, top, total, acc, slots, kv_mask, seen, keys, values, offsets, slot_stride, scale,
    CAP: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add some positions to the attention of a tile of queries.

    `top`, `total` and `acc` are each row's largest score, sum of weights and weighted values so far, in powers of 2.
    With MASKED a position counts for the rows for which `seen` says so.  CAP bounds scores by tanh; 0 for none.

    Source: arXiv:2205.14135.
    """
    key = tl.load(keys + slots[:, None] * slot_stride + offsets[None, :], mask=kv_mask, other=0.0)
    value = tl.load(values + slots[:, None] * slot_stride + offsets[None, :], mask=kv_mask, other=0.0)
    score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    if CAP > 0:
        score = CAP * (1 - 2 / (1 + tl.exp2(2 * LOG2_E * score / CAP)))
    score = score * LOG2_E
    if MASKED:
        score = tl.where(seen, score, float("-inf"))
    higher = tl.maximum(top, tl.max(score, axis=1))
    weight = tl.exp2(score - higher[:, None])
    fade = tl.exp2(top - higher)
    total = total * fade + tl.sum(weight, axis=1)
    acc = acc * fade[:, None]
    acc = tl.dot(weight.to(value.dtype), value, acc, input_precision="ieee")
    return higher, total, acc
