"""Attention of several new tokens a row against plain attention; in Triton's interpreter where there is no GPU."""

import math

import numpy as np
import pytest
import torch

from fakes.kernel_cases import DEVICE, DTYPES, TOLERANCE, distance, make_pool, plain_attention, random
from sgl_runtime.device.kernels.extend_attention import BegunRows, attend_extend, tile_tokens

SHAPES = [(9, 3, 64, 0.0), (4, 1, 16, 0.0), (4, 2, 48, 5.0)]
"""Heads, groups of them that share keys, width, cap of scores."""
if DEVICE.type == "cuda":
    SHAPES += [(32, 8, 128, 0.0), (16, 16, 64, 0.0)]
CASES = [(dtype, *shape) for dtype in DTYPES for shape in SHAPES]
if DEVICE.type == "cuda":
    # Tiles of float32 of this width are more than shared memory holds.
    CASES.append((torch.bfloat16, 4, 2, 256, 5.0))


def extend(q, keys, values, table, row_ids, prefixes, new, *, cap, begun=None):
    """What `attend_extend` gives, where rows bring so many new tokens behind such prefixes."""
    heads, dim = q.shape[1:]
    step = tile_tokens(heads // keys.shape[1])
    tiles = np.array([(row, at) for row, count in enumerate(new) for at in range(0, count, step)], dtype=np.int32)
    as_tensor = lambda values: torch.tensor(values, dtype=torch.int32, device=DEVICE)  # noqa: E731 - used three times
    out = torch.full_like(q, math.nan)
    attend_extend(
        q,
        keys,
        values,
        table=table,
        row_ids=row_ids,
        tiles=torch.from_numpy(np.ascontiguousarray(tiles.T)).to(DEVICE),
        token_starts=as_tensor((np.cumsum(new) - new).tolist()),
        prefix_lens=as_tensor(prefixes),
        extend_lens=as_tensor(new),
        out=out,
        scale=dim**-0.5,
        logit_cap=cap,
        begun=begun,
    )
    return out


def check_extend(out, q, keys, values, table, row_ids, prefixes, new, *, cap):
    for row, (start, count, prefix) in enumerate(zip(np.cumsum(new) - new, new, prefixes, strict=True)):
        slots = table[row_ids[row], : prefix + count].long()
        tokens = slice(start, start + count)
        expected = plain_attention(q[tokens], keys[slots], values[slots], q.shape[2] ** -0.5, cap)
        assert distance(out[tokens], expected) < TOLERANCE[q.dtype], row


@pytest.mark.parametrize(("dtype", "heads", "groups", "dim", "cap"), CASES)
def test_extend_attention(dtype, heads, groups, dim, cap):
    prefixes, new = [0, 5, 130, 64], [1, 70, 3, 40]
    pool = make_pool([a + b for a, b in zip(prefixes, new, strict=True)], groups, dim, dtype)
    q = random(sum(new), heads, dim, dtype=dtype, seed=9)
    out = extend(q, *pool, prefixes, new, cap=cap)
    check_extend(out, q, *pool, prefixes, new, cap=cap)


@pytest.mark.parametrize("shared", [1, 37, 128])
@pytest.mark.parametrize(("dtype", "heads", "groups", "dim", "cap"), CASES)
def test_extend_attention_goes_on_behind_what_rows_share(dtype, shared, heads, groups, dim, cap):
    # Rows 1 to 3 share positions, of which one has nothing else before its new tokens; the others stand around them.
    prefixes, new = [130, shared, shared + 70, shared + 1, 5], [2, 40, 3, 1, 35]
    keys, values, table, row_ids = make_pool([a + b for a, b in zip(prefixes, new, strict=True)], groups, dim, dtype)
    for row in (2, 3):
        table[row_ids[row], :shared] = table[row_ids[1], :shared]
    q = random(sum(new), heads, dim, dtype=dtype, seed=9)
    first, last = new[0], sum(new[:4])
    slots = table[row_ids[1], :shared].long()
    key, value = (x[slots].double().repeat_interleave(heads // groups, dim=1) for x in (keys, values))
    score = torch.einsum("thd,nhd->thn", q[first:last].double(), key) * dim**-0.5
    if cap:
        score = cap * torch.tanh(score / cap)
    out = torch.einsum("thn,nhd->thd", score.softmax(dim=-1), value).to(dtype).contiguous()
    lse = (score.logsumexp(dim=-1) / math.log(2)).float().contiguous()
    # What is begun is not read again: the last slot of a row is one that is not used.
    table[row_ids[1:4], :shared] = table[0, -1]
    begins = torch.tensor([0, shared, shared, shared, 0], dtype=torch.int32, device=DEVICE)
    begun = BegunRows(begins, first, out, lse)
    out = extend(q, keys, values, table, row_ids, prefixes, new, cap=cap, begun=begun)
    table[row_ids[1:4], :shared] = slots.int()
    check_extend(out, q, keys, values, table, row_ids, prefixes, new, cap=cap)
