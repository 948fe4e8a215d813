"""What tests of kernels launch them on, and what they compare with."""

import math

import numpy as np
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = [torch.float32, torch.bfloat16] if torch.cuda.is_available() else [torch.float32]
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 1e-2}


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


def distance(out: torch.Tensor, expected: torch.Tensor) -> float:
    return float((out.double() - expected.double()).norm() / expected.double().norm())


def plain_attention(q, keys, values, scale, cap=0.0):
    """(T, H, D) queries, the last of which sees all keys (N, G, D), the one before one less, and so on."""
    share = q.shape[1] // keys.shape[1]
    key, value = (x.double().repeat_interleave(share, dim=1) for x in (keys, values))
    score = torch.einsum("thd,nhd->htn", q.double(), key) * scale
    if cap:
        score = cap * torch.tanh(score / cap)
    seen = torch.ones(len(q), len(keys), dtype=torch.bool, device=q.device).tril(len(keys) - len(q))
    weights = score.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    return torch.einsum("htn,nhd->thd", weights, value)


def make_pool(contexts, groups, dim, dtype, seed=5):
    """Pool, table and rows: every row's context lies in random slots; what is unused is NaN."""
    rng = np.random.default_rng(seed)
    num_slots = sum(contexts) + 7
    keys, values = (random(num_slots, groups, dim, dtype=dtype, seed=seed + i) for i in range(2))
    order = rng.permutation(num_slots)
    keys[order[sum(contexts) :]] = math.nan
    values[order[sum(contexts) :]] = math.nan
    table = np.full((len(contexts) + 2, max(contexts) // 16 * 16 + 16), order[-1], dtype=np.int32)
    row_ids = rng.permutation(len(contexts) + 2)[: len(contexts)].astype(np.int32)
    begin = 0
    for row, length in zip(row_ids, contexts, strict=True):
        table[row, :length] = order[begin : begin + length]
        begin += length
    return keys, values, torch.from_numpy(table).to(DEVICE), torch.from_numpy(row_ids).to(DEVICE)
