"""Reference attention: plain torch over the paged pool.  Runs on the CPU and is the oracle of every other backend."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool

MAX_PADDING = 0.25
"""Share of padding that a group of decode rows may hold before it is split."""


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


@dataclass(frozen=True)
class _DecodeGroup:
    """Decode rows of similar length, attended together.

    Attributes:
        tokens: (b,) rows within the pass; None for all of them, in order.
        slots: (b * n,) int64 slots padded to the longest, or a slice where one row's slots lie in a run.
        mask: (b, 1, 1, n) bool, False at padding; None where all are equally long.
    """

    tokens: Tensor | None
    slots: Tensor | slice
    mask: Tensor | None


@dataclass(frozen=True)
class _ExtendRow:
    """One request's new tokens.

    Attributes:
        begin, end: Its tokens within the pass.
        slots: Slots of its whole context.
        mask: (T, N) bool; None without a prefix (then plain causal).
    """

    begin: int
    end: int
    slots: Tensor | slice
    mask: Tensor | None


def _run_or_index(slots: Tensor) -> Tensor | slice:
    """A slice if the slots follow one another, so that keys and values are read in place."""
    first, count = int(slots[0]), len(slots)
    if int(slots[-1]) == first + count - 1 and bool((slots[1:] - slots[:-1] == 1).all()):
        return slice(first, first + count)
    return slots.long()


class ReferenceAttention:
    """See `AttentionBackend`.

    Args:
        pool: Keys and values.
        slot_table: Slots by row and position.
    """

    def __init__(self, *, pool: TokenToKVPool, slot_table: SlotTable) -> None:
        self._pool = pool
        self._table = slot_table

    def prepare(self, forward_batch: ForwardBatch) -> "DecodeAttend | ExtendAttend":
        """See `AttentionBackend`."""
        if forward_batch.batch.kind == "decode":
            return DecodeAttend(self._pool, forward_batch.slot_ids, self._decode_groups(forward_batch))
        return ExtendAttend(self._pool, forward_batch.slot_ids, self._extend_rows(forward_batch))

    def _decode_groups(self, forward_batch: ForwardBatch) -> list[_DecodeGroup]:
        batch = forward_batch.batch
        device = forward_batch.input_ids.device
        lengths = batch.context_lens
        groups = []
        for members in _similar_lengths(lengths.tolist()):
            tokens = torch.tensor(members, device=device)
            length = int(lengths[members].max())
            slots = self._table.rows(torch.from_numpy(batch.row_ids[members]).long().to(device), length)
            member_lengths = torch.from_numpy(lengths[members]).to(device)
            padded = torch.arange(length, device=device) >= member_lengths.unsqueeze(1)
            if bool(padded.any()):
                # Padding repeats the row's own first slot: what another request left in a slot must not be read,
                # since a weight of zero times a NaN is a NaN.
                flat = torch.where(padded, slots[:, :1], slots).reshape(-1).long()
                groups.append(_DecodeGroup(tokens, flat, ~padded[:, None, None, :]))
            else:
                flat = slots.reshape(-1)
                groups.append(_DecodeGroup(tokens, _run_or_index(flat) if len(members) == 1 else flat.long(), None))
        if len(groups) == 1 and groups[0].tokens is not None and _in_order(groups[0].tokens):
            return [_DecodeGroup(None, groups[0].slots, groups[0].mask)]
        return groups

    def _extend_rows(self, forward_batch: ForwardBatch) -> list[_ExtendRow]:
        batch = forward_batch.batch
        device = forward_batch.input_ids.device
        rows = []
        begin = 0
        for index, new in enumerate(batch.extend_lens.tolist()):
            prefix = int(batch.prefix_lens[index])
            row = torch.tensor([int(batch.row_ids[index])], device=device)
            slots = self._table.rows(row, prefix + new)[0]
            mask = None
            if prefix and new > 1:
                mask = torch.ones(new, prefix + new, dtype=torch.bool, device=device).tril(prefix)
            rows.append(_ExtendRow(begin, begin + new, _run_or_index(slots), mask))
            begin += new
        return rows


class DecodeAttend:
    """Attention of one new token a row; heads that share keys are the query positions of one head."""

    def __init__(self, pool: TokenToKVPool, new_slots: Tensor, groups: Sequence[_DecodeGroup]) -> None:
        self._pool, self._new_slots, self._groups = pool, new_slots, groups

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, layer_id: int) -> Tensor:
        """See `Attend`."""
        self._pool.store(layer_id, self._new_slots, k, v)
        keys, values = self._pool.layer(layer_id)
        groups, dim = k.shape[1], k.shape[2]
        out = None
        for group in self._groups:
            queries = q if group.tokens is None else q[group.tokens]
            rows = queries.shape[0]
            context = (keys[group.slots], values[group.slots])
            key, value = (x.view(rows, -1, groups, dim).transpose(1, 2) for x in context)
            attended = F.scaled_dot_product_attention(
                queries.reshape(rows, groups, -1, dim), key, value, attn_mask=group.mask
            ).reshape(rows, -1, dim)
            if group.tokens is None:
                return attended
            out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
            out[group.tokens] = attended
        assert out is not None, "a decode pass holds at least one row"
        return out


class ExtendAttend:
    """Attention of several new tokens a row, row by row."""

    def __init__(self, pool: TokenToKVPool, new_slots: Tensor, rows: Sequence[_ExtendRow]) -> None:
        self._pool, self._new_slots, self._rows = pool, new_slots, rows

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, layer_id: int) -> Tensor:
        """See `Attend`."""
        self._pool.store(layer_id, self._new_slots, k, v)
        keys, values = self._pool.layer(layer_id)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        share = q.shape[1] // k.shape[1]
        for row in self._rows:
            key, value = (x[row.slots].transpose(0, 1).repeat_interleave(share, dim=0) for x in (keys, values))
            attended = F.scaled_dot_product_attention(
                q[row.begin : row.end].transpose(0, 1).unsqueeze(0),
                key.unsqueeze(0),
                value.unsqueeze(0),
                attn_mask=row.mask,
                is_causal=row.mask is None and row.end - row.begin == key.shape[1],
            )
            out[row.begin : row.end] = attended[0].transpose(0, 1)
        return out


def _similar_lengths(lengths: Sequence[int]) -> list[list[int]]:
    """Split rows into groups, longest first, so that padding stays under `MAX_PADDING` of each."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    groups: list[list[int]] = []
    used = 0
    for index in order:
        if groups:
            group = groups[-1]
            area = (len(group) + 1) * lengths[group[0]]
            if area - used - lengths[index] <= MAX_PADDING * area:
                group.append(index)
                used += lengths[index]
                continue
        groups.append([index])
        used = lengths[index]
    return [sorted(group) for group in groups]


def _in_order(tokens: Tensor) -> bool:
    return bool((tokens == torch.arange(len(tokens), device=tokens.device)).all())
