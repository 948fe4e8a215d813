"""Every backend against `reference_attention` computed request by request."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from sgl_runtime.attention.reference import ReferenceAttention, reference_attention
from sgl_runtime.attention.table import ATTENTION_BACKENDS, CONDITIONS
from sgl_runtime.batch import Batch, SamplingBatch
from sgl_runtime.device.base import Device, select_device
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool
from sgl_runtime.model_store.model_config import ModelConfig

DIM = 16

BACKENDS = [name for name in ATTENTION_BACKENDS.names() if name not in CONDITIONS.names()]
"""What has conditions on its shapes has tests of its own."""


def shapes(heads: int, groups: int) -> ModelConfig:
    data = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 10,
        "hidden_size": heads * DIM,
        "intermediate_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "max_position_embeddings": 64,
    }
    return ModelConfig.from_json(data, source="test")


def make_batch(kind: str, prefixes: list[int], new: list[int], slots: list[np.ndarray]) -> Batch:
    size = len(prefixes)
    zeros = np.zeros(size, dtype=np.float32)
    return Batch(
        kind=kind,
        row_ids=np.arange(size, dtype=np.int32)[::-1].copy(),
        prefix_lens=np.array(prefixes, dtype=np.int32),
        extend_lens=np.array(new, dtype=np.int32),
        input_ids=np.zeros(sum(new), dtype=np.int64),
        slot_ids=np.concatenate([s[p:] for s, p in zip(slots, prefixes, strict=True)]),
        changed_slots=tuple((size - 1 - i, s[:p]) for i, (s, p) in enumerate(zip(slots, prefixes, strict=True))),
        samples=np.ones(size, dtype=np.bool_),
        sampling=SamplingBatch(
            temperatures=zeros, top_ps=zeros, top_ks=zeros.astype(np.int32), min_ps=zeros, uniforms=zeros.astype(float)
        ),
        wants_logprob=np.zeros(size, dtype=np.bool_),
        logprob_starts=np.full(size, -1, dtype=np.int32),
    )


@pytest.fixture
def device() -> Device:
    """Where kernels run: on a GPU if there is one, else interpreted."""
    return select_device("cuda" if torch.cuda.is_available() else "cpu", num_threads=None)


HEADS = [(4, 4), (6, 2), (3, 1)]
LAYOUTS = ["runs", "scattered", "one prefix", "one scattered prefix"]
PASSES = [
    ("extend", [0, 0, 0], [5, 1, 9]),
    ("extend", [4, 0, 11], [3, 7, 1]),
    ("decode", [6], [1]),
    ("decode", [6, 6, 6], [1, 1, 1]),
    ("decode", [30, 6, 29, 2, 0], [1, 1, 1, 1, 1]),
    ("decode", [290, 40, 280], [1, 1, 1]),
    ("decode", [600], [1]),
    ("extend", [90, 70], [3, 1]),
]


def cases() -> list[Any]:
    """All combinations; of kernels in the interpreter the default run takes every pass and every number of heads once."""
    params = []
    for name, shape, layout, one in itertools.product(BACKENDS, HEADS, LAYOUTS, PASSES):
        is_usual = layout == "one scattered prefix" and (shape == (6, 2) or one is PASSES[4])
        marks = () if name != "triton" or is_usual else pytest.mark.slow
        params.append(pytest.param(name, *shape, layout, *one, marks=marks))
    return params


@pytest.mark.parametrize(("name", "heads", "groups", "layout", "kind", "prefixes", "new"), cases())
def test_backend_equals_the_reference(name, heads, groups, layout, kind, prefixes, new, device):
    torch.manual_seed(0)
    config = shapes(heads, groups)
    totals = [p + n for p, n in zip(prefixes, new, strict=True)]
    order = np.arange(sum(totals), dtype=np.int32) + 3
    order = order if layout in ("runs", "one prefix") else np.random.default_rng(1).permutation(order)
    slots = np.split(order, np.cumsum(totals)[:-1])
    if "prefix" in layout:
        share(slots, prefixes)
    pool = TokenToKVPool(config, num_slots=sum(totals) + 3, dtype=torch.float32, device=device.torch_device)
    for layer in range(2):
        for entries in pool.layer(layer):
            entries.fill_(float("nan"))
    table = SlotTable(num_rows=len(new), context_length=700, device=device)
    counts = new
    queries = torch.randn(sum(new), heads, DIM).to(device.torch_device)
    batch = make_batch(kind, prefixes, new, slots)
    table.update(batch)
    attend = ATTENTION_BACKENDS.load(name)(pool=pool, slot_table=table, ops=device.ops).prepare(
        ForwardBatch.from_batch(batch, device)
    )

    entries = [torch.randn(2, sum(totals) + 3, groups, DIM).to(device.torch_device) for _ in range(2)]
    new = np.concatenate([s[p:] for s, p in zip(slots, prefixes, strict=True)])
    old = np.concatenate([s[:p] for s, p in zip(slots, prefixes, strict=True)])
    for layer in range(2):
        keys, values = entries[0][layer], entries[1][layer]
        pool.store(layer, torch.from_numpy(old).long().to(device.torch_device), keys[old], values[old])
        out = attend(torch.cat([queries, keys[new], values[new]], dim=1), None, layer_id=layer)
        begin = 0
        for row_slots, count in zip(slots, counts, strict=True):
            wanted = reference_attention(
                queries[begin : begin + count], keys[row_slots], values[row_slots], scale=DIM**-0.5
            )
            torch.testing.assert_close(out[begin : begin + count], wanted, atol=1e-5, rtol=1e-5)
            begin += count


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("long", [False, True])
def test_rows_look_at_what_other_rows_of_the_same_pass_write(name, long, device):
    """Row 1 goes on from tokens of row 0, row 2 from tokens of both; none of them was in the pool before."""
    torch.manual_seed(0)
    size = 120 if long else 9
    first = np.random.default_rng(2).permutation(size).astype(np.int32)
    second = np.concatenate([first[: size - 3], np.arange(size, size + 4, dtype=np.int32)])
    third = np.concatenate([second[: size - 1], np.arange(size + 4, size + 6, dtype=np.int32)])
    slots, prefixes = [first, second, third], [0, size - 3, size - 1]
    new = [len(row) - prefix for row, prefix in zip(slots, prefixes, strict=True)]
    pool = TokenToKVPool(shapes(4, 2), num_slots=size + 6, dtype=torch.float32, device=device.torch_device)
    for entries in pool.layer(0):
        entries.fill_(float("nan"))
    table = SlotTable(num_rows=3, context_length=700, device=device)
    # Row 2 stands first in the pass: nothing depends on the order of the rows.
    order = [2, 0, 1]
    batch = make_batch(
        "extend", [prefixes[row] for row in order], [new[row] for row in order], [slots[row] for row in order]
    )
    table.update(batch)
    attend = ATTENTION_BACKENDS.load(name)(pool=pool, slot_table=table, ops=device.ops).prepare(
        ForwardBatch.from_batch(batch, device)
    )
    shapes_of = (sum(new), 4, DIM), (size + 6, 2, DIM), (size + 6, 2, DIM)
    queries, keys, values = (torch.randn(shape).to(device.torch_device) for shape in shapes_of)
    out = attend(torch.cat([queries, keys[batch.slot_ids], values[batch.slot_ids]], dim=1), None, layer_id=0)
    begin = 0
    for row in order:
        wanted = reference_attention(
            queries[begin : begin + new[row]], keys[slots[row]], values[slots[row]], scale=DIM**-0.5
        )
        torch.testing.assert_close(out[begin : begin + new[row]], wanted, atol=1e-5, rtol=1e-5)
        begin += new[row]


def share(slots: list[np.ndarray], prefixes: list[int]) -> None:
    """Let rows have the slots of the first row's prefix, as far as both have one."""
    for row, prefix in zip(slots[1:], prefixes[1:], strict=True):
        length = min(prefix, prefixes[0])
        row[:length] = slots[0][:length]


def test_reference_refuses_shapes_that_do_not_fit():
    q, k = torch.zeros(3, 4, DIM), torch.zeros(2, 4, DIM)
    with pytest.raises(ValueError, match="does not fit"):
        reference_attention(q, k, k, scale=1.0)
    assert ReferenceAttention.__name__ in ATTENTION_BACKENDS.load("reference").__name__
