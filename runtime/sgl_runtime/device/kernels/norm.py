"""RMS norm and gated activation in one pass over memory each."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def rms_norm_kernel(x, residual, weight, out, width, eps, ADD: tl.constexpr, BLOCK: tl.constexpr):
    """One row for each program; with ADD the residual stream is added first, and overwritten with the sum."""
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    value = tl.load(x + row + columns, mask=inside, other=0.0)
    if ADD:
        other = tl.load(residual + row + columns, mask=inside, other=0.0)
        value = (value.to(tl.float32) + other.to(tl.float32)).to(value.dtype)
        tl.store(residual + row + columns, value, mask=inside)
    wide = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / width + eps)
    normed = (wide * scale).to(value.dtype) * tl.load(weight + columns, mask=inside, other=0.0)
    tl.store(out + row + columns, normed.to(value.dtype), mask=inside)


@triton.jit
def norm_heads_kernel(
    qkv, q_weight, k_weight, eps, NUM_HEADS: tl.constexpr, NUM_GROUPS: tl.constexpr, DIM: tl.constexpr,
    LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid: (tokens, blocks of heads).  Of a token's H + 2 G heads the first H + G are normed in place."""
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    lanes = tl.arange(0, LANES)
    inside = (heads < NUM_HEADS + NUM_GROUPS)[:, None] & (lanes < DIM)[None, :]
    at = qkv + token * (NUM_HEADS + 2 * NUM_GROUPS) * DIM + heads[:, None] * DIM + lanes[None, :]
    value = tl.load(at, mask=inside, other=0.0)
    wide = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=1) / DIM + eps)
    of_query = tl.load(q_weight + lanes, mask=lanes < DIM, other=0.0)
    of_key = tl.load(k_weight + lanes, mask=lanes < DIM, other=0.0)
    weight = tl.where((heads < NUM_HEADS)[:, None], of_query[None, :], of_key[None, :])
    tl.store(at, ((wide * scale[:, None]).to(value.dtype) * weight).to(value.dtype), mask=inside)


@triton.jit
def silu_and_mul_kernel(x, out, width, BLOCK: tl.constexpr):
    """Grid: (rows, blocks of columns)."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    gate = tl.load(x + row * 2 * width + columns, mask=inside, other=0.0)
    up = tl.load(x + row * 2 * width + width + columns, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    activated = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    tl.store(out + row * width + columns, activated * up, mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> Tensor:
    """See `Ops.rms_norm`; with a residual stream, x is added to it in place first.

    Args:
        x: (T, C), contiguous.
        weight: (C,).
        eps: Added to the mean square.
        residual: (T, C), contiguous, overwritten with the sum; None: x is normed as it is.
    """
    out = torch.empty_like(x)
    width = x.shape[-1]
    block = triton.next_power_of_2(width)
    rms_norm_kernel[(x.shape[0],)](
        x, x if residual is None else residual, weight, out, width, eps,
        ADD=residual is not None, BLOCK=block, num_warps=min(16, max(1, block // 512)),
    )  # fmt: skip
    return out


def norm_heads(qkv: Tensor, q_weight: Tensor, k_weight: Tensor, *, num_heads: int, eps: float) -> None:
    """See `Ops.norm_heads`; `qkv` is contiguous."""
    tokens, all_heads, dim = qkv.shape
    groups = (all_heads - num_heads) // 2
    block = min(8, triton.next_power_of_2(num_heads + groups))
    norm_heads_kernel[(tokens, triton.cdiv(num_heads + groups, block))](
        qkv, q_weight, k_weight, eps, NUM_HEADS=num_heads, NUM_GROUPS=groups, DIM=dim,
        LANES=triton.next_power_of_2(dim), BLOCK=block,
    )  # fmt: skip


def silu_and_mul(x: Tensor) -> Tensor:
    """See `Ops.silu_and_mul`."""
    rows, width = x.shape[0], x.shape[-1] // 2
    out = torch.empty((rows, width), dtype=x.dtype, device=x.device)
    block = min(1024, triton.next_power_of_2(width))
    silu_and_mul_kernel[(rows, triton.cdiv(width, block))](x, out, width, BLOCK=block)
    return out
