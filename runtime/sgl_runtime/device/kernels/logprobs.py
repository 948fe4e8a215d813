"""The log probability of one token of each row, in one pass over the logits, which writes nothing of their size."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.kernel import kernel

BLOCK = 8192
"""Tokens that a program looks at."""


@kernel()
def sum_blocks_kernel(logits, tops, totals, vocab_size, row_stride, num_blocks, BLOCK: tl.constexpr):
    """Grid: (blocks of tokens, rows): the largest logit of a block, and the sum of all weights beside it."""
    block = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    tokens = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * row_stride + tokens, mask=tokens < vocab_size, other=float("-inf")).to(tl.float32)
    top = tl.max(value, axis=0)
    # A block may hold nothing that may come: infinity less infinity must not be asked for.
    weight = tl.exp(value - tl.maximum(top, -1e30))
    tl.store(tops + row * num_blocks + block, top)
    tl.store(totals + row * num_blocks + block, tl.sum(weight, axis=0))


@kernel()
def logprob_kernel(logits, ids, tops, totals, out, row_stride, num_blocks, BLOCKS: tl.constexpr):
    """Grid: (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    blocks = tl.arange(0, BLOCKS)
    inside = blocks < num_blocks
    top = tl.load(tops + row * num_blocks + blocks, mask=inside, other=float("-inf"))
    total = tl.load(totals + row * num_blocks + blocks, mask=inside, other=0.0)
    highest = tl.max(top, axis=0)
    normalizer = highest + tl.log(tl.sum(total * tl.exp(tl.maximum(top, -1e30) - highest), axis=0))
    chosen = tl.load(logits + row * row_stride + tl.load(ids + row)).to(tl.float32)
    tl.store(out + row, chosen - normalizer)


def logprobs(logits: Tensor, ids: Tensor) -> Tensor:
    """See `Ops.logprobs`; rows are contiguous."""
    num_rows, vocab_size = logits.shape
    num_blocks = triton.cdiv(vocab_size, BLOCK)
    tops, totals = (torch.empty((num_rows, num_blocks), dtype=torch.float32, device=logits.device) for _ in range(2))
    out = torch.empty(num_rows, dtype=torch.float32, device=logits.device)
    sum_blocks_kernel[(num_blocks, num_rows)](
        logits, tops, totals, vocab_size, logits.stride(0), num_blocks, BLOCK=BLOCK, num_warps=8
    )
    logprob_kernel[(num_rows,)](
        logits, ids, tops, totals, out, logits.stride(0), num_blocks,
        BLOCKS=triton.next_power_of_2(num_blocks), num_warps=1,
    )  # fmt: skip
    return out
