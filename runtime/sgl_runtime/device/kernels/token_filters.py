"""Top-k, top-p and min-p without sorting: each row's least logit that stays, found by narrowing a range down.

Logits are compared by keys, integers in the same order.  A pass over the row counts the tokens, and adds up their
weights, from three keys on that split the range in four; so each pass leaves a quarter of it.  Bfloat16 has keys of 16
bits, which takes at most eight passes a filter; other types have 32, and end as soon as the range holds one token.

Of equal logits at the edge, those of the smallest ids stay, as many as the filter leaves.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.kernel import kernel

BLOCK, WARPS = 4096, 16
"""Tokens that a program looks at together, and its warps."""

_SIGN = tl.constexpr(0x7FFFFFFF)
"""All bits but the sign."""


@triton.jit
def _keys(values, SHIFT: tl.constexpr):
    """Integers in the order of float32 values whose last SHIFT bits are zero."""
    # Minus zero becomes zero.
    bits = (values + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ _SIGN) >> SHIFT


@triton.jit
def _value(key, SHIFT: tl.constexpr):
    """The float32 value of a key."""
    bits = key << SHIFT
    bits = tl.where(key >= 0, bits, (bits | ((1 << SHIFT) - 1)) ^ _SIGN)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _load(logits, masks, tokens, vocab_size, HAS_MASKS: tl.constexpr):
    inside = tokens < vocab_size
    if HAS_MASKS:
        words = tl.load(masks + tokens // 32, mask=inside, other=0)
        inside = inside & ((words >> (tokens % 32)) & 1 == 1)
    values = tl.load(logits + tokens, mask=inside, other=float("-inf")).to(tl.float32)
    # What is no number counts for nothing, as what may not come.
    return tl.where(values == values, values, float("-inf"))


@triton.jit
def _largest(logits, masks, vocab_size, HAS_MASKS: tl.constexpr, BLOCK: tl.constexpr):
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, vocab_size, BLOCK):
        top = tl.maximum(top, _load(logits, masks, start + tl.arange(0, BLOCK), vocab_size, HAS_MASKS))
    return tl.max(top, axis=0)


@triton.jit
def _add_up(
    logits, masks, vocab_size, top, temperature, key1, key2, key3,
    HAS_MASKS: tl.constexpr, BLOCK: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """Of the tokens from each of three keys on: how many there are, and the sum of their weights."""
    count1 = tl.zeros([BLOCK], tl.int32)
    count2 = tl.zeros([BLOCK], tl.int32)
    count3 = tl.zeros([BLOCK], tl.int32)
    weight1 = tl.zeros([BLOCK], tl.float32)
    weight2 = tl.zeros([BLOCK], tl.float32)
    weight3 = tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocab_size, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        values = _load(logits, masks, tokens, vocab_size, HAS_MASKS)
        # Places behind the vocabulary count for nothing.
        keys = tl.where(tokens < vocab_size, _keys(values, SHIFT), -2147483648)
        weights = tl.exp((values - top) / temperature)
        count1 += (keys >= key1).to(tl.int32)
        count2 += (keys >= key2).to(tl.int32)
        count3 += (keys >= key3).to(tl.int32)
        weight1 += tl.where(keys >= key1, weights, 0.0)
        weight2 += tl.where(keys >= key2, weights, 0.0)
        weight3 += tl.where(keys >= key3, weights, 0.0)
    return (
        tl.sum(count1, axis=0), tl.sum(count2, axis=0), tl.sum(count3, axis=0),
        tl.sum(weight1, axis=0), tl.sum(weight2, axis=0), tl.sum(weight3, axis=0),
    )  # fmt: skip


@triton.jit
def _narrow(
    logits, masks, vocab_size, top, temperature, low, high, low_count, low_weight, wanted,
    BY_COUNT: tl.constexpr, HAS_MASKS: tl.constexpr, BLOCK: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """Narrow down from which key on tokens reach a count or a weight: from `low` on they do, from `high` on not.

    Returns:
        low, high, and their counts and weights; `high` follows `low`, or what is wanted is met from `low` on exactly.
    """
    high_count = tl.full([], 0, tl.int32)
    high_weight = tl.full([], 0.0, tl.float32)
    settled = low_count == wanted.to(tl.int32) if BY_COUNT else low_count - high_count == 1
    while (high - low > 1) & (settled == 0):
        width = high - low
        key1 = low + width // 4
        key2 = low + width // 2
        key3 = low + width // 4 + width // 2
        count1, count2, count3, weight1, weight2, weight3 = _add_up(
            logits, masks, vocab_size, top, temperature, key1.to(tl.int32), key2.to(tl.int32), key3.to(tl.int32),
            HAS_MASKS, BLOCK, SHIFT,
        )  # fmt: skip
        if BY_COUNT:
            reach1, reach2, reach3 = count1 >= wanted, count2 >= wanted, count3 >= wanted
        else:
            reach1, reach2, reach3 = weight1 >= wanted, weight2 >= wanted, weight3 >= wanted
        # The first quarter begins at `low` where the range is short: it is known to reach.
        reach1 = reach1 | (key1 == low)
        reach2 = reach2 & reach1
        reach3 = reach3 & reach2
        if reach3 == 0:
            high, high_count, high_weight = key3, count3, weight3
        if reach2 == 0:
            high, high_count, high_weight = key2, count2, weight2
        if reach1 == 0:
            high, high_count, high_weight = key1, count1, weight1
        if reach1 & (key1 > low):
            low, low_count, low_weight = key1, count1, weight1
        if reach2 & (key2 > low):
            low, low_count, low_weight = key2, count2, weight2
        if reach3 & (key3 > low):
            low, low_count, low_weight = key3, count3, weight3
        settled = low_count == wanted.to(tl.int32) if BY_COUNT else low_count - high_count == 1
    return low, high, low_count, low_weight, high_count, high_weight


@triton.jit
def _last_tie(
    logits, masks, vocab_size, key, wanted, HAS_MASKS: tl.constexpr, BLOCK: tl.constexpr, SHIFT: tl.constexpr
):  # fmt: skip
    """The id of one of the tokens of a key: so many, `wanted`, there are up to it."""
    last = -1
    seen = 0
    for start in range(0, vocab_size, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        values = _load(logits, masks, tokens, vocab_size, HAS_MASKS)
        tie = ((_keys(values, SHIFT) == key) & (tokens < vocab_size)).to(tl.int32)
        rank = seen + tl.cumsum(tie, axis=0)
        last = tl.maximum(last, tl.max(tl.where((tie == 1) & (rank <= wanted), tokens, -1), axis=0))
        seen += tl.sum(tie, axis=0)
    return last


@kernel(varying=("temperatures", "top_ks", "top_ps", "min_ps", "vocab_size"))
def find_least_kernel(
    logits, temperatures, top_ks, top_ps, min_ps, masks, least, last_ties, vocab_size, row_stride, mask_stride,
    HAS_MASKS: tl.constexpr, BLOCK: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """Grid: (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperatures + row)
    top_k = tl.load(top_ks + row)
    top_p = tl.load(top_ps + row)
    min_p = tl.load(min_ps + row)
    has_top_k = (top_k > 0) & (top_k < vocab_size)
    logits += row * row_stride
    masks += row * mask_stride
    value = tl.full([], float("-inf"), tl.float32)
    last = tl.full([], 2147483647, tl.int32)
    if (temperature > 0.0) & (has_top_k | (top_p < 1.0) | (min_p > 0.0)):
        top = _largest(logits, masks, vocab_size, HAS_MASKS, BLOCK)
        above = _keys(top, SHIFT).to(tl.int64) + 1
        low = _keys(value, SHIFT).to(tl.int64)
        # How many tokens stay at least, their weight, and how many of those with the least key go with them.
        kept = vocab_size
        total = tl.full([], 0.0, tl.float32)
        ties = vocab_size
        if has_top_k:
            low, high, low_count, low_weight, high_count, high_weight = _narrow(
                logits, masks, vocab_size, top, temperature, low, above, vocab_size, total, top_k,
                True, HAS_MASKS, BLOCK, SHIFT,
            )  # fmt: skip
            kept = top_k
            total = low_weight
            if low_count > top_k:
                ties = top_k - high_count
                total = high_weight + ties * tl.exp((_value(low.to(tl.int32), SHIFT) - top) / temperature)
        if top_p < 1.0:
            if has_top_k == 0:
                key = low.to(tl.int32)
                _, _, _, total, _, _ = _add_up(
                    logits, masks, vocab_size, top, temperature, key, key, key, HAS_MASKS, BLOCK, SHIFT
                )  # fmt: skip
            before = low
            low, high, low_count, low_weight, high_count, high_weight = _narrow(
                logits, masks, vocab_size, top, temperature, low, above, kept, total, top_p * total,
                False, HAS_MASKS, BLOCK, SHIFT,
            )  # fmt: skip
            weight = tl.exp((_value(low.to(tl.int32), SHIFT) - top) / temperature)
            if (high - low == 1) & (low_count - high_count > 1):
                needed = tl.maximum(tl.ceil((top_p * total - high_weight) / weight), 1.0)
                needed = tl.minimum(needed, (low_count - high_count).to(tl.float32)).to(tl.int32)
                ties = tl.where(low == before, tl.minimum(ties, needed), needed)
            elif low > before:
                ties = vocab_size
        value = _value(low.to(tl.int32), SHIFT)
        if ties < vocab_size:
            last = _last_tie(logits, masks, vocab_size, low.to(tl.int32), ties, HAS_MASKS, BLOCK, SHIFT)
        if min_p > 0.0:
            bound = top + temperature * tl.log(min_p)
            if bound > value:
                value = bound
                last = 2147483647
    tl.store(least + row, value)
    tl.store(last_ties + row, last)


@dataclass(frozen=True)
class TokenFilters:
    """Which tokens top-k, top-p and min-p leave to each row.

    Attributes:
        least: (R,) float32; tokens of larger logits stay.
        last_ties: (R,) int32; of those of this very logit, the ones up to this id stay.
    """

    least: Tensor
    last_ties: Tensor


def find_filters(
    logits: Tensor, *, temperatures: Tensor, top_ks: Tensor, top_ps: Tensor, min_ps: Tensor, masks: Tensor | None = None
) -> TokenFilters:
    """Find what the filters leave: top-k first, then top-p of what is left, then min-p against the likeliest.

    Args:
        logits: (R, V) float, contiguous rows.
        temperatures: (R,) float32; rows of temperature 0 are not filtered.
        top_ks: (R,) int32; -1 is off.
        top_ps, min_ps: (R,) float32; 1 and 0 are off.
        masks: (R, ceil(V / 32)) int32 bits of the tokens that may come; None: all may.
    """
    num_rows, vocab_size = logits.shape
    least = torch.empty(num_rows, dtype=torch.float32, device=logits.device)
    last_ties = torch.empty(num_rows, dtype=torch.int32, device=logits.device)
    find_least_kernel[(num_rows,)](
        logits, temperatures, top_ks, top_ps, min_ps, logits if masks is None else masks, least, last_ties, vocab_size,
        logits.stride(0), 0 if masks is None else masks.stride(0), HAS_MASKS=masks is not None, BLOCK=BLOCK,
        SHIFT=16 if logits.dtype == torch.bfloat16 else 0, num_warps=WARPS,
    )  # fmt: skip
    return TokenFilters(least, last_ties)
