"""Rotary embedding of queries and keys, fused with the write of keys and values into the pool."""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def rotate_and_store_kernel(
    qkv, cos, sin, slots, keys, values, slot_stride,
    NUM_HEADS: tl.constexpr, NUM_GROUPS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
    ROTATE: tl.constexpr,
):  # fmt: skip
    """Grid: (tokens, blocks of heads).  Queries are rotated in place, keys on their way into the pool.

    The heads of a token are H of queries, G of keys, G of values.  HALF is D / 2 rounded up to a power of 2.
    """
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    lanes = tl.arange(0, HALF)
    half: tl.constexpr = DIM // 2
    inside = (heads < NUM_HEADS + 2 * NUM_GROUPS)[:, None] & (lanes < half)[None, :]
    source = qkv + token * (NUM_HEADS + 2 * NUM_GROUPS) * DIM + heads[:, None] * DIM + lanes[None, :]
    first = tl.load(source, mask=inside, other=0.0)
    second = tl.load(source + half, mask=inside, other=0.0)
    slot = tl.load(slots + token).to(tl.int64)
    is_query = heads < NUM_HEADS
    is_key = (heads >= NUM_HEADS) & (heads < NUM_HEADS + NUM_GROUPS)
    is_value = heads >= NUM_HEADS + NUM_GROUPS
    a, b = first, second
    if ROTATE:
        c = tl.load(cos + token * half + lanes, mask=lanes < half, other=0.0).to(tl.float32)[None, :]
        s = tl.load(sin + token * half + lanes, mask=lanes < half, other=0.0).to(tl.float32)[None, :]
        x, y = first.to(tl.float32), second.to(tl.float32)
        a = (x * c - y * s).to(first.dtype)
        b = (y * c + x * s).to(first.dtype)
        tl.store(source, a, mask=inside & is_query[:, None])
        tl.store(source + half, b, mask=inside & is_query[:, None])
    key = keys + slot * slot_stride + (heads - NUM_HEADS)[:, None] * DIM + lanes[None, :]
    tl.store(key, a, mask=inside & is_key[:, None])
    tl.store(key + half, b, mask=inside & is_key[:, None])
    value = values + slot * slot_stride + (heads - NUM_HEADS - NUM_GROUPS)[:, None] * DIM + lanes[None, :]
    tl.store(value, first, mask=inside & is_value[:, None])
    tl.store(value + half, second, mask=inside & is_value[:, None])


def rotate_and_store(
    qkv: Tensor,
    rotary: tuple[Tensor, Tensor] | None,
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
) -> None:
    """Rotate queries in place; write rotated keys, and values, into the pool.

    Args:
        qkv: (T, H + 2 G, D), contiguous.
        rotary: Cosines and sines of the tokens' positions, (T, D / 2) each; None: nothing is rotated.
        slots: (T,) int.
        keys, values: (slots, G, D) of one layer; the last two dimensions contiguous.
    """
    tokens, all_heads, dim = qkv.shape
    groups = keys.shape[1]
    block = 8 if all_heads % 8 == 0 else triton.next_power_of_2(min(all_heads, 16))
    cos, sin = (qkv, qkv) if rotary is None else rotary
    rotate_and_store_kernel[(tokens, triton.cdiv(all_heads, block))](
        qkv, cos, sin, slots, keys, values, keys.stride(0),
        NUM_HEADS=all_heads - 2 * groups, NUM_GROUPS=groups, DIM=dim, HALF=triton.next_power_of_2(dim // 2),
        BLOCK=block, ROTATE=rotary is not None, num_warps=4,
    )  # fmt: skip
