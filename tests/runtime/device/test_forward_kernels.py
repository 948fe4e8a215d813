"""The kernels of the forward pass against their plain twins; in Triton's interpreter where there is no GPU."""

import math

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from fakes.kernel_cases import DEVICE, DTYPES, TOLERANCE, distance, make_pool, plain_attention, random
from sgl_runtime.attention.decode_pieces import cut
from sgl_runtime.cache.shared_ranges import find_shared
from sgl_runtime.device.cuda import CudaOps
from sgl_runtime.device.kernels.decode_attention import PIECE_WORDS, attend_pieces
from sgl_runtime.device.kernels.logprobs import logprobs
from sgl_runtime.device.kernels.matvec import matvec
from sgl_runtime.device.kernels.norm import rms_norm, silu_and_mul
from sgl_runtime.device.kernels.rotary import rotate_and_store
from sgl_runtime.device.kernels.sampling import _gumbel, draw, mask_logits
from sgl_runtime.device.kernels.shared_attention import attend_shared, members_of_tile
from sgl_runtime.device.ops import Ops

OPS = Ops()


def wide(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    return [None if tensor is None else tensor.double() for tensor in tensors]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 576), (5, 64), (3, 100)])
def test_norms(dtype, rows, width):
    x, weight = random(rows, width, dtype=dtype), random(width, dtype=dtype, seed=2)
    assert distance(rms_norm(x, weight, 1e-5), OPS.rms_norm(x, weight, 1e-5)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_are_normed_where_they_lie_among_others(dtype):
    """What backends of plain attention ask of a GPU's operations: heads of queries, and of keys, are parts of rows."""
    qkv = random(5, 9 + 2 * 3, 16, dtype=dtype)
    norms = random(16, dtype=dtype, seed=1), random(16, dtype=dtype, seed=2), 1e-6
    expected = qkv.clone()
    OPS.norm_heads(expected, norms, num_heads=9)
    CudaOps(None).norm_heads(qkv, norms, num_heads=9)
    assert distance(qkv, expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [64, 1536, 1000])
def test_silu_and_mul(dtype, width):
    x = random(3, 2 * width, dtype=dtype)
    assert distance(silu_and_mul(x), OPS.silu_and_mul(x)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "groups", "dim"), [(9, 3, 64), (8, 2, 16), (4, 4, 32)])
@pytest.mark.parametrize("rotates", [True, False])
@pytest.mark.parametrize("norms", [True, False])
def test_rotated_keys_and_values_reach_their_slots(dtype, heads, groups, dim, rotates, norms):
    tokens, num_slots = 5, 11
    qkv = random(tokens, heads + 2 * groups, dim, dtype=dtype)
    cos, sin = random(tokens, dim // 2, dtype=dtype, seed=1), random(tokens, dim // 2, dtype=dtype, seed=2)
    slots = torch.tensor([4, 10, 0, 2, 9], device=DEVICE)
    keys, values = (torch.full((num_slots, groups, dim), 7.0, dtype=dtype, device=DEVICE) for _ in range(2))
    normed = qkv.clone()
    head_norms = (random(dim, dtype=dtype, seed=3), random(dim, dtype=dtype, seed=4), 1e-6) if norms else None
    if head_norms is not None:
        OPS.norm_heads(normed, head_norms, num_heads=heads)
    turned = normed[:, : heads + groups]
    if rotates:
        turned = OPS.rotary(turned.float(), cos.float(), sin.float()).to(dtype)
    expected_values = qkv[:, heads + groups :].clone()
    rotate_and_store(qkv, (cos, sin) if rotates else None, slots, keys, values, head_norms=head_norms)
    assert distance(qkv[:, :heads], turned[:, :heads]) < TOLERANCE[dtype]
    assert distance(keys[slots], turned[:, heads:]) < TOLERANCE[dtype]
    assert torch.equal(values[slots], expected_values)
    untouched = [slot for slot in range(num_slots) if slot not in slots.tolist()]
    assert bool((keys[untouched] == 7).all())
    assert bool((values[untouched] == 7).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(9, 64), (30, 700)])
def test_linear_of_one_row(dtype, has_bias, shape):
    x, weight = random(1, shape[1], dtype=dtype), random(*shape, dtype=dtype, seed=1)
    bias = random(shape[0], dtype=dtype, seed=2) if has_bias else None
    assert distance(matvec(x, weight, bias), OPS.linear(*wide(x, weight, bias))) < TOLERANCE[dtype]
    norm = random(shape[1], dtype=dtype, seed=3)
    expected = OPS.norm_linear(x.double(), (norm.double(), 1e-5), *wide(weight, bias))
    assert distance(matvec(x, weight, bias, norm=(norm, 1e-5)), expected) < TOLERANCE[dtype]
    residual = random(1, shape[0], dtype=dtype, seed=4)
    expected = OPS.add_linear(*wide(residual, x, weight, bias))
    total = matvec(x, weight, bias, residual=residual)
    assert total is residual
    assert distance(total, expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(9, 64), (30, 700)])
def test_gated_linear_of_one_row(dtype, has_bias, shape):
    x, weight = random(1, shape[1], dtype=dtype), random(2 * shape[0], shape[1], dtype=dtype, seed=1)
    bias = random(2 * shape[0], dtype=dtype, seed=2) if has_bias else None
    norm = random(shape[1], dtype=dtype, seed=3)
    expected = OPS.gated_linear(x.double(), (norm.double(), 1e-5), *wide(weight, bias))
    assert distance(matvec(x, weight, bias, norm=(norm, 1e-5), gated=True), expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [40, 8192, 20_000])
def test_log_probabilities_of_chosen_tokens(dtype, vocab):
    logits = 5 * random(3, vocab, dtype=dtype)
    # A row of which whole blocks may not come, and one with a far likelier token than all others.
    logits[0, : vocab // 2] = -math.inf
    logits[1, vocab - 1] = 300.0
    ids = torch.tensor([vocab - 2, 7, vocab // 3], device=DEVICE)
    expected = OPS.logprobs(logits.double(), ids)
    torch.testing.assert_close(logprobs(logits, ids), expected.float(), atol=1e-4, rtol=1e-5)


def test_masks_of_logits():
    logits = random(3, 5000)
    words = torch.randint(-(2**31), 2**31, (3, 160), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    expected = logits.clone()
    OPS.mask_logits(expected, words.to(DEVICE))
    mask_logits(logits, words.to(DEVICE))
    assert torch.equal(logits, expected)


DECODE_SHAPES = [(9, 3, 64, 0.0), (4, 2, 48, 5.0), (8, 4, 16, 0.0)]
"""Heads, groups of them that share keys, width, cap of scores."""
if DEVICE.type == "cuda":
    DECODE_SHAPES += [(32, 8, 128, 0.0), (12, 1, 128, 5.0), (16, 16, 32, 0.0), (4, 2, 256, 0.0)]


def with_table_rows(pieces, row_ids):
    pieces = pieces.copy()
    pieces[:, 1] = row_ids.cpu().numpy()[pieces[:, 0]]
    return pieces


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extra", [1, 12])
@pytest.mark.parametrize(("heads", "groups", "dim", "cap"), DECODE_SHAPES)
def test_decode_attention(dtype, extra, heads, groups, dim, cap):
    contexts = [1, 300, 65, 701]
    keys, values, table, row_ids = make_pool(contexts, groups, dim, dtype)
    q = random(len(contexts), heads, dim, dtype=dtype, seed=9)
    plan = cut(np.array(contexts, dtype=np.int32), extra=extra)
    assert plan.count <= len(contexts) + extra
    assert (plan.num_pieces.max() > 1) == (extra > 1)
    room = len(contexts) + extra
    pieces = np.zeros((room, PIECE_WORDS), dtype=np.int32)
    pieces[: plan.count] = with_table_rows(plan.pieces, row_ids)
    tickets = torch.zeros(len(contexts), groups, dtype=torch.int32, device=DEVICE)
    out = torch.full((len(contexts), heads, dim), math.nan, dtype=dtype, device=DEVICE)
    to_device = lambda array: torch.from_numpy(array).to(DEVICE)  # noqa: E731 - used three times below
    attend_pieces(
        q,
        keys,
        values,
        table=table,
        pieces=to_device(pieces),
        counts=to_device(np.array([plan.count, 0], dtype=np.int32)),
        tickets=tickets,
        partial_out=torch.empty(room, heads, dim, device=DEVICE),
        partial_lse=torch.empty(room, heads, device=DEVICE),
        out=out,
        scale=dim**-0.5,
        logit_cap=cap,
    )
    for row, length in enumerate(contexts):
        slots = table[row_ids[row], :length].long()
        expected = plain_attention(q[row : row + 1], keys[slots], values[slots], dim**-0.5, cap)
        assert distance(out[row : row + 1], expected) < TOLERANCE[dtype], row
    assert not bool(tickets.any())


def test_decode_attention_that_is_told_of_no_piece_does_nothing():
    # A graph is captured so; what lies in front of the list must not be taken for pieces.
    keys, values, table, row_ids = make_pool([40, 30], 4, 16, torch.float32)
    q = random(2, 8, 16, seed=9)
    count = 8 if DEVICE.type == "cpu" else 1024
    pieces = np.zeros((2 * count, PIECE_WORDS), dtype=np.int32)
    plan = cut(np.array([40, 30], dtype=np.int32), extra=1)
    pieces[:count] = with_table_rows(plan.pieces, row_ids)[0]
    out = torch.full((2, 8, 16), 7.0, device=DEVICE)
    attend_pieces(
        q,
        keys,
        values,
        table=table,
        pieces=torch.from_numpy(pieces).to(DEVICE)[count:],
        counts=torch.zeros(2, dtype=torch.int32, device=DEVICE),
        tickets=torch.zeros(2, 4, dtype=torch.int32, device=DEVICE),
        partial_out=torch.empty(2, 8, 16, device=DEVICE),
        partial_lse=torch.empty(2, 8, device=DEVICE),
        out=out,
        scale=0.25,
    )
    assert bool((out == 7.0).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "groups", "dim", "cap"), [(9, 3, 64, 0.0), (4, 2, 48, 5.0)])
def test_decode_attention_over_shared_ranges(dtype, heads, groups, dim, cap):
    contexts = [400, 333, 390, 1, 140, 900, 640, 700]
    keys, values, table, row_ids = make_pool(contexts, groups, dim, dtype)
    # Rows 0 to 2 share 300 positions, of which the first two 20 more; rows 5 to 7 share 600.
    for rows, end in (((0, 1, 2), 300), ((0, 1), 320), ((5, 6, 7), 600)):
        for row in rows[1:]:
            table[row_ids[row], :end] = table[row_ids[rows[0]], :end]
    q = random(len(contexts), heads, dim, dtype=dtype, seed=9)
    lengths = np.array(contexts, dtype=np.int32)
    shared = find_shared(table.cpu().numpy(), row_ids.cpu().numpy(), lengths - 1, min_length=16, min_saved=16)
    assert sorted((sorted(part.rows.tolist()), part.begin, part.end) for part in shared) == [
        ([0, 1], 300, 320),
        ([0, 1, 2], 0, 300),
        ([5, 6, 7], 0, 600),
    ]
    members = members_of_tile(heads // groups)
    plan = cut(lengths, extra=3, shared=shared, members=members)
    out = torch.full((len(contexts), heads, dim), math.nan, dtype=dtype, device=DEVICE)
    partial_out = torch.full((plan.num_places, heads, dim), math.nan, device=DEVICE)
    partial_lse = torch.full((plan.num_places, heads), math.nan, device=DEVICE)
    counts = torch.tensor([plan.count, len(plan.tiles)], dtype=torch.int32, device=DEVICE)
    common = {
        "table": table,
        "partial_out": partial_out,
        "partial_lse": partial_lse,
        "scale": dim**-0.5,
        "logit_cap": cap,
    }
    tiles = torch.from_numpy(plan.tiles).to(DEVICE)
    attend_shared(q, keys, values, row_ids=row_ids, tiles=tiles, num_tiles=counts[1:], **common)
    attend_pieces(
        q,
        keys,
        values,
        pieces=torch.from_numpy(with_table_rows(plan.pieces, row_ids)).to(DEVICE),
        counts=counts,
        tickets=torch.zeros(len(contexts), groups, dtype=torch.int32, device=DEVICE),
        out=out,
        **common,
    )
    for row, length in enumerate(contexts):
        slots = table[row_ids[row], :length].long()
        expected = plain_attention(q[row : row + 1], keys[slots], values[slots], dim**-0.5, cap)
        assert distance(out[row : row + 1], expected) < TOLERANCE[dtype], row


@pytest.mark.parametrize("lengths", [[1], [1, 1, 1], [5000, 1, 2], [100, 20_000, 300, 4000], [700] * 9])
@pytest.mark.parametrize("extra", [0, 1, 16, 128])
def test_pieces_cover_every_context_once(lengths, extra):
    plan = cut(np.array(lengths, dtype=np.int32), extra=extra)
    assert plan.count <= len(lengths) + extra
    covered = {row: [] for row in range(len(lengths))}
    places = []
    for row, _, begin, end, place, first, total, own in plan.pieces.tolist():
        assert (first, total, own) == (plan.firsts[row], plan.num_pieces[row], total)
        covered[row] += range(begin, end)
        assert (place == -1) == (plan.num_pieces[row] == 1)
        if place >= 0:
            assert plan.firsts[row] <= place < plan.firsts[row] + plan.num_pieces[row]
            places.append(place)
    assert sorted(places) == list(range(len(places)))
    for row, length in enumerate(lengths):
        assert sorted(covered[row]) == list(range(length))


@triton.jit
def noise_kernel(uniforms, out, fast: tl.constexpr, size: tl.constexpr):
    at = tl.arange(0, size)
    tl.store(out + at, _gumbel(tl.load(uniforms + at), fast))


def test_noise_is_exact_where_tokens_are_drawn_and_bounded():
    # The generator's numbers are multiples of 2^-31; the smallest decide.
    numbers = torch.cat([torch.arange(512) * 2.0**-31, torch.logspace(-9, -0.001, 511), torch.tensor([1 - 2.0**-24])])
    out = torch.empty(1024, device=DEVICE)
    noise_kernel[(1,)](numbers.to(DEVICE), out, fast=DEVICE.type == "cuda", size=1024)
    exact = -torch.log(-torch.log1p(-numbers.double()) + 2.0**-32)
    assert float((out.double().cpu() - exact).abs().max()) < 2e-5
    assert float(out.max()) < 22.2


def test_draws_follow_the_softmax_under_masks_and_are_repeatable():
    rows, vocab = 20_000 if torch.cuda.is_available() else 120, 40
    logits = random(1, vocab).expand(rows, vocab).contiguous()
    allowed = torch.zeros(vocab, dtype=torch.bool)
    allowed[[1, 5, 17, 33, 39]] = True
    words = np.packbits(np.pad(allowed.numpy(), (0, 24)), bitorder="little").view(np.int32)
    arguments = {
        "temperatures": torch.full((rows,), 0.7, device=DEVICE),
        "seeds": torch.arange(rows, device=DEVICE, dtype=torch.int64) * 7919,
        "rows": torch.arange(rows, device=DEVICE),
        "drawn_ids": torch.zeros(rows, dtype=torch.int64, device=DEVICE),
        "masks": torch.from_numpy(words).expand(rows, 2).contiguous().to(DEVICE),
    }
    drawn = draw(logits, **arguments)
    assert torch.equal(drawn, draw(logits, **arguments))
    assert torch.equal(drawn, arguments["drawn_ids"])
    expected = (logits[0].cpu() / 0.7).masked_fill(~allowed, float("-inf")).softmax(dim=-1).double() * rows
    counts = torch.bincount(drawn.cpu(), minlength=vocab).double()
    assert bool((counts[~allowed] == 0).all())
    chi_squared = float(((counts - expected)[allowed] ** 2 / expected[allowed]).sum())
    assert chi_squared < 18.5, "one in a thousand with four degrees of freedom"


def test_without_temperature_the_likeliest_token_comes():
    logits = random(3, 5000, seed=4)
    drawn_ids = torch.full((9,), -1, dtype=torch.int64, device=DEVICE)
    drawn = draw(
        logits,
        temperatures=torch.zeros(3, device=DEVICE),
        seeds=torch.zeros(3, dtype=torch.int64, device=DEVICE),
        rows=torch.tensor([8, 2, 5], device=DEVICE),
        drawn_ids=drawn_ids,
    )
    assert torch.equal(drawn, logits.argmax(dim=-1))
    assert drawn_ids[[8, 2, 5]].tolist() == drawn.tolist()
    assert drawn_ids.tolist().count(-1) == 6
