"""Rotary embedding of queries and keys, fused with the norm of their heads and the write into the pool."""

import triton
import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.early_launch import starts_early, wait_for_previous
from sgl_runtime.device.kernels.kernel import kernel


@triton.jit
def _norm_heads(first, second, is_query, q_weight, k_weight, lanes, eps, DIM: tl.constexpr):
    """RMS norm of heads given by their halves, with the weights of queries or of keys; float32."""
    half: tl.constexpr = DIM // 2
    x, y = first.to(tl.float32), second.to(tl.float32)
    scale = tl.rsqrt((tl.sum(x * x, axis=1) + tl.sum(y * y, axis=1)) / DIM + eps)[:, None]
    inside = lanes < half
    w = tl.where(
        is_query[:, None],
        tl.load(q_weight + lanes, mask=inside, other=0.0)[None, :],
        tl.load(k_weight + lanes, mask=inside, other=0.0)[None, :],
    )
    v = tl.where(
        is_query[:, None],
        tl.load(q_weight + half + lanes, mask=inside, other=0.0)[None, :],
        tl.load(k_weight + half + lanes, mask=inside, other=0.0)[None, :],
    )
    return (x * scale).to(first.dtype) * w, (y * scale).to(first.dtype) * v


@kernel(varying=("slots",))
def rotate_and_store_kernel(
    qkv, cos, sin, slots, keys, values, q_weight, k_weight, slot_stride, eps,
    NUM_HEADS: tl.constexpr, NUM_GROUPS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
    ROTATE: tl.constexpr, HAS_NORM: tl.constexpr, KEEP_KEYS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Grid: (tokens, blocks of heads).  Queries are rotated in place, keys on their way into the pool.

    With KEEP_KEYS keys are rotated in place as well.

    The heads of a token are H of queries, G of keys, G of values.  HALF is D / 2 rounded up to a power of 2.
    """
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    lanes = tl.arange(0, HALF)
    half: tl.constexpr = DIM // 2
    inside = (heads < NUM_HEADS + 2 * NUM_GROUPS)[:, None] & (lanes < half)[None, :]
    source = qkv + token * (NUM_HEADS + 2 * NUM_GROUPS) * DIM + heads[:, None] * DIM + lanes[None, :]
    slot = tl.load(slots + token).to(tl.int64)
    is_query = heads < NUM_HEADS
    is_key = (heads >= NUM_HEADS) & (heads < NUM_HEADS + NUM_GROUPS)
    is_value = heads >= NUM_HEADS + NUM_GROUPS
    if ROTATE:
        c = tl.load(cos + token * half + lanes, mask=lanes < half, other=0.0).to(tl.float32)[None, :]
        s = tl.load(sin + token * half + lanes, mask=lanes < half, other=0.0).to(tl.float32)[None, :]
    wait_for_previous(EARLY)
    first = tl.load(source, mask=inside, other=0.0)
    second = tl.load(source + half, mask=inside, other=0.0)
    a, b = first, second
    if HAS_NORM:
        a, b = _norm_heads(first, second, is_query, q_weight, k_weight, lanes, eps, DIM=DIM)
        a, b = a.to(first.dtype), b.to(first.dtype)
    if ROTATE:
        x, y = a.to(tl.float32), b.to(tl.float32)
        a = (x * c - y * s).to(first.dtype)
        b = (y * c + x * s).to(first.dtype)
    if ROTATE or HAS_NORM:
        in_place = is_query
        if KEEP_KEYS:
            in_place = is_query | is_key
        tl.store(source, a, mask=inside & in_place[:, None])
        tl.store(source + half, b, mask=inside & in_place[:, None])
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
    *,
    head_norms: tuple[Tensor, Tensor, float] | None = None,
    keeps_keys: bool = False,
) -> None:
    """Rotate queries in place; write rotated keys, and values, into the pool.

    Args:
        qkv: (T, H + 2 G, D), contiguous.
        rotary: Cosines and sines of the tokens' positions, (T, D / 2) each; None: nothing is rotated.
        slots: (T,) int.
        keys, values: (slots, G, D) of one layer; the last two dimensions contiguous.
        head_norms: Weights (D,) of the norms of each head of queries and keys, and their epsilon; None: no norm.
        keeps_keys: Whether rotated keys are written back to `qkv` as well.
    """
    tokens, all_heads, dim = qkv.shape
    groups = keys.shape[1]
    block = 8 if all_heads % 8 == 0 else triton.next_power_of_2(min(all_heads, 16))
    cos, sin = (qkv, qkv) if rotary is None else rotary
    q_weight, k_weight, eps = (qkv, qkv, 0.0) if head_norms is None else head_norms
    early = starts_early(qkv)
    rotate_and_store_kernel[(tokens, triton.cdiv(all_heads, block))](
        qkv, cos, sin, slots, keys, values, q_weight, k_weight, keys.stride(0), eps,
        NUM_HEADS=all_heads - 2 * groups, NUM_GROUPS=groups, DIM=dim, HALF=triton.next_power_of_2(dim // 2),
        BLOCK=block, ROTATE=rotary is not None, HAS_NORM=head_norms is not None, KEEP_KEYS=keeps_keys,
        EARLY=early, num_warps=4, launch_pdl=early,
    )  # fmt: skip
