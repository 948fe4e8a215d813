"""Invariant attention: a token's result depends on its own context alone, bit by bit.

Every product has one fixed shape: `QUERIES` tokens of one request against `KEYS` positions of its context, both cut at
multiples from its beginning, so that a token always stands in the same place of a product.  So it does not matter what
else the pass holds, how much of the context was in the cache, or in how many pieces the prompt is computed.  The plain
oracle is `reference_attention`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sgl_runtime.attention.base import RotateFirst
from sgl_runtime.device.ops import Ops
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool

QUERIES = 8
KEYS = 128


@dataclass(frozen=True)
class _Block:
    """New tokens of a request that stand in one product.

    Attributes:
        begin, end: Their place within the pass.
        place: Rows of the product before the first of them.
        num_chunks: Chunks of the context that they look at.
        later: (QUERIES, num_chunks * KEYS) bool, True where a position lies behind a token.
    """

    begin: int
    end: int
    place: int
    num_chunks: int
    later: Tensor


@dataclass(frozen=True)
class _Row:
    """One request of the pass.

    Attributes:
        slots: (N,) int64 slots of its context, with the new tokens.
        blocks: The new tokens.
    """

    slots: Tensor
    blocks: list[_Block]


class InvariantAttention:
    """See `AttentionBackend`.

    Args:
        pool: Keys and values.
        slot_table: Slots by row and position.
        ops: The device's operations.
    """

    captured = None

    def __init__(self, *, pool: TokenToKVPool, slot_table: SlotTable, ops: Ops) -> None:
        self._pool = pool
        self._table = slot_table
        self._ops = ops

    def prepare(self, forward_batch: ForwardBatch) -> RotateFirst:
        """See `AttentionBackend`."""
        batch = forward_batch.batch
        device = forward_batch.input_ids.device
        rows = []
        begin = 0
        for row_id, prefix, new in zip(
            batch.row_ids.tolist(), batch.prefix_lens.tolist(), batch.extend_lens.tolist(), strict=True
        ):
            slots = self._table.rows(torch.tensor([row_id], device=device), prefix + new)[0].long()
            rows.append(_Row(slots, _blocks(begin, prefix, new, device)))
            begin += new
        attend = InvariantAttend(self._pool, forward_batch.slot_ids, rows)
        return RotateFirst(attend, num_groups=self._pool.num_groups, ops=self._ops)


class InvariantAttend:
    """See `AttendRotated`.

    Args:
        pool: Keys and values.
        new_slots: (T,) slots of the new tokens.
        rows: The requests of the pass.
    """

    def __init__(self, pool: TokenToKVPool, new_slots: Tensor, rows: Sequence[_Row]) -> None:
        self._pool, self._new_slots, self._rows = pool, new_slots, rows

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, layer_id: int) -> Tensor:
        """See `AttendRotated`."""
        self._pool.store(layer_id, self._new_slots, k, v)
        keys, values = self._pool.layer(layer_id)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        for row in self._rows:
            row_keys, row_values = (_chunks(x[row.slots]) for x in (keys, values))
            for block in row.blocks:
                tokens = slice(block.begin, block.end)
                out[tokens] = _attend(q[tokens], row_keys, row_values, block)
        return out


def _blocks(begin: int, prefix_len: int, num_new: int, device: torch.device) -> list[_Block]:
    blocks = []
    total = prefix_len + num_new
    for block in range(prefix_len // QUERIES * QUERIES, total, QUERIES):
        first, end = max(block, prefix_len), min(block + QUERIES, total)
        num_chunks = (end - 1) // KEYS + 1
        positions = torch.arange(num_chunks * KEYS, device=device)
        later = positions > torch.arange(block, block + QUERIES, device=device).unsqueeze(1)
        offset = begin - prefix_len
        blocks.append(_Block(offset + first, offset + end, first - block, num_chunks, later))
    return blocks


def _chunks(context: Tensor) -> Tensor:
    """(N, G, D) to (ceil(N / KEYS), G, KEYS, D) float32, padded with zeros."""
    padded = F.pad(context.float(), (0, 0, 0, 0, 0, -len(context) % KEYS))
    return padded.view(-1, KEYS, *context.shape[1:]).transpose(1, 2).contiguous()


def _attend(q: Tensor, keys: Tensor, values: Tensor, block: _Block) -> Tensor:
    """A block of tokens over their context.

    Args:
        q: (T, H, D).
        keys, values: (chunks, G, KEYS, D) float32.
        block: What they look at.
    """
    tokens, heads, dim = q.shape
    groups, num_chunks = keys.shape[1], block.num_chunks
    behind = QUERIES - block.place - tokens
    # Heads that share keys are further query positions; rows that are missing are made up, and dropped.
    queries = F.pad(q.float() * dim**-0.5, (0, 0, 0, 0, block.place, behind)).view(QUERIES, groups, -1, dim)
    queries = queries.permute(1, 2, 0, 3).reshape(groups, -1, dim)
    scores = torch.cat([queries @ keys[index].transpose(1, 2) for index in range(num_chunks)], dim=-1)
    later = block.later.repeat(heads // groups, 1)
    # A row's softmax runs through it in steps of a vector, so weights of 0 behind its end leave every bit as it is.
    weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
    out = weights[..., :KEYS].contiguous() @ values[0]
    for index in range(1, num_chunks):
        out += weights[..., index * KEYS : (index + 1) * KEYS].contiguous() @ values[index]
    rows = out.view(groups, -1, QUERIES, dim).permute(2, 0, 1, 3).reshape(QUERIES, heads, dim)
    return rows[block.place : block.place + tokens].to(q.dtype)
