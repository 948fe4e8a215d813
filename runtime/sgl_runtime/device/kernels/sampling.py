"""Drawing tokens in one pass over the logits: temperature, token masks and the draw together.

The largest of logit / temperature + noise is a draw from the softmax, where the noise of each token is drawn from the
Gumbel distribution; so nothing is summed, sorted or written.  The noise is a function of the row's seed and the token.

Source: the Gumbel-max trick; random numbers by Philox (Salmon et al. 2011), as Triton has them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sgl_runtime.device.kernels.kernel import is_for_gpu, kernel
from sgl_runtime.device.kernels.token_filters import TokenFilters

BLOCK = 4096
"""Tokens that a program looks at."""

ROUNDS = tl.constexpr(7)
"""Rounds of the generator; seven pass every test of randomness that its authors ran."""


LN_2 = tl.constexpr(0.6931471805599453)
HALF_STEP = tl.constexpr(2.0**-32)


@triton.jit
def _log2(value, FAST: tl.constexpr):
    """FAST: by the chip's own unit, within 2e-7 or a relative 2e-7, whichever is more."""
    if FAST:
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [value], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.log2(value)


@triton.jit
def _gumbel(uniform, FAST: tl.constexpr):
    """Noise of the Gumbel distribution from a number in [0, 1), one of 2^31.

    It is less the logarithm of an exponential, -log(1 - u).  What is drawn are the small ones of those, where 1 - u has
    few digits left: there it is a sum of powers, and only elsewhere a logarithm.  Each number stands for the middle of
    those around it: zero, which comes once in 2^31 times and so in every few thousand draws from a large vocabulary,
    must not make its token win against any odds.
    """
    small = uniform * (1.0 + uniform * (0.5 + uniform * (0.33333333 + uniform * (0.25 + uniform * 0.2))))
    exponential = tl.where(uniform < 0.03, small, -LN_2 * _log2(1.0 - uniform, FAST))
    return -LN_2 * _log2(exponential + HALF_STEP, FAST)


@triton.jit
def _score(
    logits, masks, tokens, vocab_size, inverse_temperature, uniform, least, last_tie, has_masks,
    PLAIN: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    inside = tokens < vocab_size
    if not PLAIN:
        words = tl.load(masks + tokens // 32, mask=inside & (has_masks != 0), other=-1)
        inside = inside & ((words >> (tokens % 32)) & 1 == 1)
    score = tl.load(logits + tokens, mask=inside, other=float("-inf")).to(tl.float32)
    # What is no number must not come, nor be the largest: no id would be found for it.
    inside = inside & (score == score)
    if not PLAIN:
        inside = inside & ((score > least) | ((score == least) & (tokens <= last_tie)))
    if inverse_temperature > 0.0:
        score = score * inverse_temperature + _gumbel(uniform, FAST)
    return tl.where(inside, score, float("-inf"))


@kernel(varying=("temperatures", "seeds", "least", "last_ties", "has_masks", "has_filters"))
def draw_blocks_kernel(
    logits, temperatures, seeds, masks, least, last_ties, best_value, best_id, vocab_size, row_stride, mask_stride,
    num_blocks, has_masks, has_filters, PLAIN: tl.constexpr, FAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid: (blocks of tokens, rows): the best of a block.

    A block is four runs of tokens, since one call of the generator gives four numbers.  PLAIN says that there are
    neither masks nor filters.  Which of them there are is known only when it runs, and nothing is loaded of what is not
    there: each variant more would make a start longer.
    """
    block = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    RUN: tl.constexpr = BLOCK // 4
    lanes = tl.arange(0, RUN)
    temperature = tl.load(temperatures + row)
    # Of a temperature of zero it is zero, and there is no noise.
    cold = temperature <= 0.0
    inverse = tl.where(cold, 0.0, tl.minimum(1.0 / tl.where(cold, 1.0, temperature), 3e38))
    u0, u1, u2, u3 = tl.rand4x(tl.load(seeds + row), block * RUN + lanes, n_rounds=ROUNDS)
    first = block * BLOCK + lanes
    logits += row * row_stride
    masks += row * mask_stride
    edge = tl.load(least + row, mask=has_filters != 0, other=float("-inf"))
    tie = tl.load(last_ties + row, mask=has_filters != 0, other=2147483647)
    best = _score(logits, masks, first, vocab_size, inverse, u0, edge, tie, has_masks, PLAIN, FAST)
    place = first
    for run in tl.static_range(1, 4):
        uniform = u1 if run == 1 else (u2 if run == 2 else u3)
        tokens = first + run * RUN
        score = _score(logits, masks, tokens, vocab_size, inverse, uniform, edge, tie, has_masks, PLAIN, FAST)
        place = tl.where(score > best, tokens, place)
        best = tl.maximum(best, score)
    value = tl.max(best, axis=0)
    # Of equal ones the smallest id, as elsewhere.
    token = tl.min(tl.where(best == value, place, 2147483647), axis=0)
    tl.store(best_value + row * num_blocks + block, value)
    tl.store(best_id + row * num_blocks + block, token)


@kernel()
def mask_logits_kernel(logits, masks, vocab_size, row_stride, mask_stride, BLOCK: tl.constexpr):
    """Grid: (blocks of tokens, rows)."""
    row = tl.program_id(1).to(tl.int64)
    tokens = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = tokens < vocab_size
    words = tl.load(masks + row * mask_stride + tokens // 32, mask=inside, other=0)
    forbidden = inside & ((words >> (tokens % 32)) & 1 == 0)
    tl.store(logits + row * row_stride + tokens, float("-inf"), mask=forbidden)


@kernel(varying=("rows",))
def best_block_kernel(
    best_value, best_id, rows, out, drawn_ids, num_blocks, KEEP: tl.constexpr, BLOCKS: tl.constexpr
):  # fmt: skip
    """Grid: (rows,): the best of all blocks; with KEEP for the next pass as well, by row of the slot table."""
    row = tl.program_id(0).to(tl.int64)
    blocks = tl.arange(0, BLOCKS)
    inside = blocks < num_blocks
    values = tl.load(best_value + row * num_blocks + blocks, mask=inside, other=float("-inf"))
    _, place = tl.max(values, axis=0, return_indices=True)
    token = tl.load(best_id + row * num_blocks + place).to(tl.int64)
    tl.store(out + row, token)
    if KEEP:
        tl.store(drawn_ids + tl.load(rows + row), token)


def draw(
    logits: Tensor,
    *,
    temperatures: Tensor,
    seeds: Tensor,
    rows: Tensor | None = None,
    drawn_ids: Tensor | None = None,
    masks: Tensor | None = None,
    filters: TokenFilters | None = None,
) -> Tensor:
    """Draw a token for every row.

    Args:
        logits: (R, V) float, contiguous rows.
        temperatures: (R,) float32; 0 takes the likeliest token.
        seeds: (R,) int64: the noise of row and draw.
        rows: (R,) int: row of the slot table, where the tokens are to be kept.
        drawn_ids: (rows of the slot table,) int64; gets the drawn tokens.  None: they are only returned.
        masks: (R, ceil(V / 32)) int32 bits of the tokens that may come; None: all may.
        filters: What else takes tokens away; None: nothing.

    Returns:
        (R,) int64.
    """
    num_rows, vocab_size = logits.shape
    num_blocks = triton.cdiv(vocab_size, BLOCK)
    best_value = torch.empty((num_rows, num_blocks), dtype=torch.float32, device=logits.device)
    best_id = torch.empty((num_rows, num_blocks), dtype=torch.int32, device=logits.device)
    out = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    least, last_ties = (best_value, best_id) if filters is None else (filters.least, filters.last_ties)
    words, words_of_row = (best_id, triton.cdiv(vocab_size, 32)) if masks is None else (masks, masks.stride(0))
    draw_blocks_kernel[(num_blocks, num_rows)](
        logits, temperatures, seeds, words, least, last_ties, best_value, best_id, vocab_size, logits.stride(0),
        words_of_row, num_blocks, int(masks is not None), int(filters is not None),
        PLAIN=masks is None and filters is None, FAST=is_for_gpu(logits), BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
    best_block_kernel[(num_rows,)](
        best_value, best_id, out if rows is None else rows, out, out if drawn_ids is None else drawn_ids, num_blocks,
        KEEP=drawn_ids is not None, BLOCKS=triton.next_power_of_2(num_blocks), num_warps=1,
    )  # fmt: skip
    return out


def mask_logits(logits: Tensor, masks: Tensor) -> None:
    """See `Ops.mask_logits`; rows are contiguous."""
    num_rows, vocab_size = logits.shape
    mask_logits_kernel[(triton.cdiv(vocab_size, BLOCK), num_rows)](
        logits, masks, vocab_size, logits.stride(0), masks.stride(0), BLOCK=BLOCK
    )
