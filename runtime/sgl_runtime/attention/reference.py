"""Reference attention: plain torch over the paged pool.  Runs on the CPU and is the oracle of every other backend."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sgl_runtime.attention.base import AttendRotated, RotateFirst
from sgl_runtime.attention.decode_plan import SharedPrefix, TailGroup, is_run, plan_decode
from sgl_runtime.attention.partial import Partial, attend_part
from sgl_runtime.batch import IntArray
from sgl_runtime.device.ops import Ops
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool

MAX_STACKED = 64
"""New tokens up to which an extend stacks the heads that share keys, in place of copying the keys for each."""


def reference_attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
    """Causal attention of the newest T positions over a context of N tokens.

    Args:
        q: (T, H, D) float, the newest T of the N positions.
        k, v: (N, G, D), dtype of q; H is a multiple of G.
        scale: Factor on the scores, commonly D ** -0.5.

    Returns:
        (T, H, D), dtype of q; softmax runs in float32.

    Raises:
        ValueError: T > N, or H is not a multiple of G.

    Source: arXiv:1706.03762 section 3.2.1; grouped heads, arXiv:2305.13245.
    """
    num_new, heads, _ = q.shape
    num_context, groups, _ = k.shape
    if num_new > num_context or heads % groups:
        raise ValueError(f"q {tuple(q.shape)} does not fit k {tuple(k.shape)}")
    k, v = (x.repeat_interleave(heads // groups, dim=1).float() for x in (k, v))
    scores = torch.einsum("thd,nhd->htn", q.float(), k) * scale
    later = torch.ones(num_new, num_context, dtype=torch.bool, device=q.device).triu(num_context - num_new + 1)
    weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
    return torch.einsum("htn,nhd->thd", weights, v).to(q.dtype)


Slots = Tensor | slice
"""Slots of a context: an index, or a slice where they lie in a run, so that keys and values are read in place."""


@dataclass(frozen=True)
class _Prefix:
    """A prefix that several rows look at.

    Attributes:
        rows: (b,) rows of the pass; None for all, in order.
        slots: Its slots.
    """

    rows: Tensor | None
    slots: Slots


@dataclass(frozen=True)
class _Tail:
    """What rows have of their own, attended together.

    Attributes:
        rows: (b,) rows of the pass; None for all, in order.
        slots: (b * n,) slots.
        mask: (b, 1, 1, n) bool, False at padding; None where all are equally long.
    """

    rows: Tensor | None
    slots: Slots
    mask: Tensor | None


@dataclass(frozen=True)
class _ExtendRow:
    """One request's new tokens.

    Attributes:
        begin, end: Its tokens within the pass.
        slots: Slots of its whole context.
        mask: (T, N) bool; None without a prefix (then plain causal), and for a single token.
    """

    begin: int
    end: int
    slots: Slots
    mask: Tensor | None


class ReferenceAttention:
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
        attend: AttendRotated
        if forward_batch.batch.kind == "decode":
            attend = self._prepare_decode(forward_batch)
        else:
            attend = ExtendAttend(self._pool, forward_batch.slot_ids, self._extend_rows(forward_batch))
        return RotateFirst(attend, num_groups=self._pool.num_groups, ops=self._ops)

    def _prepare_decode(self, forward_batch: ForwardBatch) -> "DecodeAttend":
        batch = forward_batch.batch
        device = forward_batch.input_ids.device
        lengths = batch.context_lens.tolist()
        table = self._table.rows(torch.from_numpy(batch.row_ids).long().to(device), max(lengths))
        plan = plan_decode(table.cpu().numpy(), lengths)
        prefixes = [_prefix(prefix, batch.size, device) for prefix in plan.prefixes]
        tails = [_tail(tail, batch.size, device) for tail in plan.tails]
        return DecodeAttend(self._pool, forward_batch.slot_ids, prefixes, tails)

    def _extend_rows(self, forward_batch: ForwardBatch) -> list[_ExtendRow]:
        batch = forward_batch.batch
        device = forward_batch.input_ids.device
        rows = []
        begin = 0
        for index, new in enumerate(batch.extend_lens.tolist()):
            prefix = int(batch.prefix_lens[index])
            row = torch.tensor([int(batch.row_ids[index])], device=device)
            slots = self._table.rows(row, prefix + new)[0].cpu().numpy()
            mask = None
            if prefix and new > 1:
                mask = torch.ones(new, prefix + new, dtype=torch.bool, device=device).tril(prefix)
            rows.append(_ExtendRow(begin, begin + new, _slots(slots, device), mask))
            begin += new
        return rows


def _slots(slots: IntArray, device: torch.device) -> Slots:
    if is_run(slots):
        return slice(int(slots[0]), int(slots[-1]) + 1)
    return torch.from_numpy(slots).long().to(device)


def _rows(members: list[int], size: int, device: torch.device) -> Tensor | None:
    return None if members == list(range(size)) else torch.tensor(members, device=device)


def _prefix(prefix: SharedPrefix, size: int, device: torch.device) -> _Prefix:
    return _Prefix(_rows(prefix.members, size, device), _slots(prefix.slots, device))


def _tail(tail: TailGroup, size: int, device: torch.device) -> _Tail:
    count, width = tail.slots.shape
    counts = torch.from_numpy(tail.lengths).to(device)
    mask = torch.arange(width, device=device) < counts.unsqueeze(1)
    shown = None if bool(mask.all()) else mask[:, None, None, :]
    slots = _slots(tail.slots[0], device) if count == 1 else torch.from_numpy(tail.slots).reshape(-1).long().to(device)
    return _Tail(_rows(tail.members, size, device), slots, shown)


class DecodeAttend:
    """Attention of one new token a row; heads that share keys are the query positions of one head.

    Args:
        pool: Keys and values.
        new_slots: (B,) slots of the new tokens.
        prefixes: Shared or unbroken prefixes, each row in at most one.
        tails: What the rows have of their own, each row in one.
    """

    def __init__(
        self, pool: TokenToKVPool, new_slots: Tensor, prefixes: Sequence[_Prefix], tails: Sequence[_Tail]
    ) -> None:
        self._pool, self._new_slots = pool, new_slots
        self._prefixes, self._tails = prefixes, tails

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, layer_id: int) -> Tensor:
        """See `Attend`."""
        self._pool.store(layer_id, self._new_slots, k, v)
        keys, values = self._pool.layer(layer_id)
        if not self._prefixes:
            return _scatter(q, [(tail.rows, _whole(tail, q, keys, values)) for tail in self._tails])
        parts = [(tail.rows, _partial_tail(tail, q, keys, values)) for tail in self._tails]
        own = Partial(
            _scatter(q, [(rows, part.out) for rows, part in parts]),
            _scatter(q[..., :1], [(rows, part.lse) for rows, part in parts]),
        )
        out = own.out
        for prefix in self._prefixes:
            part = _partial_prefix(prefix, q, keys, values)
            if prefix.rows is None:
                return own.merge(part)
            out[prefix.rows] = Partial(own.out[prefix.rows], own.lse[prefix.rows]).merge(part)
        return out


def _scatter(like: Tensor, parts: Sequence[tuple[Tensor | None, Tensor]]) -> Tensor:
    """Put the rows of the parts in order, in a tensor of the shape of `like`."""
    if parts[0][0] is None:
        return parts[0][1]
    out = torch.empty(like.shape, dtype=parts[0][1].dtype, device=like.device)
    for rows, part in parts:
        out[rows] = part
    return out


def _grouped(tail: _Tail, q: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (b, G, H / G, D), keys and values (b, G, n, D) of a tail group."""
    queries = q if tail.rows is None else q[tail.rows]
    rows, groups, dim = queries.shape[0], keys.shape[1], keys.shape[2]
    key, value = (x[tail.slots].view(rows, -1, groups, dim).transpose(1, 2) for x in (keys, values))
    return queries.reshape(rows, groups, -1, dim), key, value


def _whole(tail: _Tail, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    queries, key, value = _grouped(tail, q, keys, values)
    out = F.scaled_dot_product_attention(queries, key, value, attn_mask=tail.mask)
    return out.reshape(len(queries), -1, q.shape[-1])


def _partial_tail(tail: _Tail, q: Tensor, keys: Tensor, values: Tensor) -> Partial:
    queries, key, value = _grouped(tail, q, keys, values)
    out, lse = attend_part(queries, key, value, tail.mask)
    return Partial(out.reshape(len(queries), -1, q.shape[-1]), lse.reshape(len(queries), -1, 1))


def _partial_prefix(prefix: _Prefix, q: Tensor, keys: Tensor, values: Tensor) -> Partial:
    """The rows of a prefix look at its keys at once: (G, b * H / G, D) over (G, n, D)."""
    queries = q if prefix.rows is None else q[prefix.rows]
    rows, groups, dim = queries.shape[0], keys.shape[1], keys.shape[2]
    stacked = queries.reshape(rows, groups, -1, dim).transpose(0, 1).reshape(groups, -1, dim)
    out, lse = attend_part(stacked, keys[prefix.slots].transpose(0, 1), values[prefix.slots].transpose(0, 1), None)
    per_row = (x.view(groups, rows, -1, x.shape[-1]).transpose(0, 1).reshape(rows, -1, x.shape[-1]) for x in (out, lse))
    return Partial(*per_row)


class ExtendAttend:
    """Attention of several new tokens a row, row by row."""

    def __init__(self, pool: TokenToKVPool, new_slots: Tensor, rows: Sequence[_ExtendRow]) -> None:
        self._pool, self._new_slots, self._rows = pool, new_slots, rows

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, layer_id: int) -> Tensor:
        """See `Attend`."""
        self._pool.store(layer_id, self._new_slots, k, v)
        keys, values = self._pool.layer(layer_id)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        for row in self._rows:
            queries, key, value = q[row.begin : row.end], keys[row.slots], values[row.slots]
            attend = _extend_stacked if len(queries) <= MAX_STACKED < len(key) else _extend_copied
            out[row.begin : row.end] = attend(queries, key, value, row.mask)
        return out


def _extend_stacked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Heads that share keys are further query positions: (G, H / G * T, D) over (G, N, D)."""
    tokens, heads, dim = q.shape
    groups = k.shape[1]
    stacked = q.view(tokens, groups, -1, dim).permute(1, 2, 0, 3).reshape(1, groups, -1, dim)
    repeated = None if mask is None else mask.repeat(heads // groups, 1)
    out = F.scaled_dot_product_attention(
        stacked, k.transpose(0, 1).unsqueeze(0), v.transpose(0, 1).unsqueeze(0), attn_mask=repeated
    )
    return out.view(groups, -1, tokens, dim).permute(2, 0, 1, 3).reshape(tokens, heads, dim)


def _extend_copied(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Keys and values are repeated for the heads that share them."""
    share = q.shape[1] // k.shape[1]
    key, value = (x.transpose(0, 1).repeat_interleave(share, dim=0).unsqueeze(0) for x in (k, v))
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1).unsqueeze(0), key, value, attn_mask=mask, is_causal=mask is None and len(q) == len(k)
    )
    return out[0].transpose(0, 1)
