"""Triton attention: split-KV kernels for decode passes, tiles of queries for the others, over slots of any order."""

import numpy as np
import torch
from torch import Tensor

from sgl_runtime.attention.base import Attend, Rotary
from sgl_runtime.attention.decode_pieces import cut
from sgl_runtime.batch import Batch, IntArray
from sgl_runtime.device.kernels.decode_attention import attend_pieces
from sgl_runtime.device.kernels.extend_attention import attend_extend, tile_tokens
from sgl_runtime.device.kernels.rotary import rotate_and_store
from sgl_runtime.device.ops import Ops
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool

EXTRA_PIECES = 128
"""How many pieces more than rows a decode pass may be cut into: enough for every multiprocessor of a large chip."""


class TritonAttention:
    """See `AttentionBackend`.

    Args:
        pool: Keys and values.
        slot_table: Slots by row and position.
        ops: The device's operations.
    """

    def __init__(self, *, pool: TokenToKVPool, slot_table: SlotTable, ops: Ops) -> None:
        self._pool = pool
        self._table = slot_table

    def prepare(self, forward_batch: ForwardBatch) -> Attend:
        """See `AttentionBackend`."""
        batch = forward_batch.batch
        device = forward_batch.input_ids.device
        if batch.kind == "decode":
            host = DecodePlanBuffer(batch.size)
            host.fill(batch)
            return self.decode(forward_batch.slot_ids, torch.from_numpy(host.words).to(device), batch.size)
        return TritonExtend(self._pool, self._table, forward_batch)

    def decode(self, slot_ids: Tensor, plan: Tensor, size: int) -> "TritonDecode":
        """The attend of a decode pass.

        Args:
            slot_ids: (B,) slots of the new tokens.
            plan: The words of a `DecodePlanBuffer` of this size, on the device.
            size: B.
        """
        return TritonDecode(self._pool, self._table, slot_ids, plan, size)


class DecodePlanBuffer:
    """What the kernels of a decode pass must know, in one array that is copied at once.

    Args:
        size: Rows of the pass, those included that only fill it up.

    Attributes:
        words: (N,) int32.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.words = np.zeros(self.num_words(size), dtype=np.int32)

    @staticmethod
    def num_words(size: int) -> int:
        """N."""
        return 4 * (size + EXTRA_PIECES) + 1 + 3 * size

    def fill(self, batch: Batch) -> None:
        """Plan a pass of at most `size` rows."""
        pieces, counts, firsts, num_pieces, row_ids = split_plan(self.words, self.size)
        plan = cut(batch.context_lens, extra=EXTRA_PIECES)
        pieces[:, : plan.count] = plan.pieces
        counts[0] = plan.count
        firsts[: batch.size] = plan.firsts
        num_pieces[: batch.size] = plan.num_pieces
        num_pieces[batch.size :] = 0
        row_ids[: batch.size] = batch.row_ids


def split_plan(words: IntArray, size: int) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Pieces (4, N), their count (1,), then for each row the first place, the number of pieces and the table's row."""
    room = 4 * (size + EXTRA_PIECES)
    rest = words[room + 1 :]
    return (
        words[:room].reshape(4, -1),
        words[room : room + 1],
        rest[:size],
        rest[size : 2 * size],
        rest[2 * size : 3 * size],
    )


class TritonDecode:
    """See `Attend`; one new token a row.

    Args:
        pool: Keys and values.
        slot_table: Slots by row and position.
        slot_ids: (B,) slots of the new tokens.
        plan: See `TritonAttention.decode`.
        size: B.
    """

    def __init__(self, pool: TokenToKVPool, slot_table: SlotTable, slot_ids: Tensor, plan: Tensor, size: int) -> None:
        self._pool, self._table, self._slot_ids = pool, slot_table.table, slot_ids
        room = 4 * (size + EXTRA_PIECES)
        rest = plan[room + 1 :]
        self._pieces, self._counts = plan[:room].view(4, -1), plan[room : room + 1]
        self._firsts, self._num_pieces, self._row_ids = rest[:size], rest[size : 2 * size], rest[2 * size : 3 * size]
        self._scratch: tuple[Tensor, Tensor] | None = None

    def __call__(self, qkv: Tensor, rotary: Rotary | None, *, layer_id: int) -> Tensor:
        """See `Attend`."""
        keys, values = self._pool.layer(layer_id)
        rotate_and_store(qkv, rotary, self._slot_ids, keys, values)
        heads, dim = qkv.shape[1] - 2 * self._pool.num_groups, qkv.shape[2]
        if self._scratch is None:
            # As many places as there may be pieces of rows that are split.
            room = self._pieces.shape[1]
            self._scratch = (
                torch.empty((room, heads, dim), dtype=torch.float32, device=qkv.device),
                torch.empty((room, heads), dtype=torch.float32, device=qkv.device),
            )
        partial_out, partial_lse = self._scratch
        out = torch.empty((qkv.shape[0], heads, dim), dtype=qkv.dtype, device=qkv.device)
        attend_pieces(
            qkv[:, :heads],
            keys,
            values,
            table=self._table,
            row_ids=self._row_ids,
            pieces=self._pieces,
            counts=self._counts,
            firsts=self._firsts,
            num_pieces=self._num_pieces,
            partial_out=partial_out,
            partial_lse=partial_lse,
            out=out,
            scale=dim**-0.5,
        )
        return out


class TritonExtend:
    """See `Attend`; several new tokens a row.

    Args:
        pool: Keys and values.
        slot_table: Slots by row and position.
        forward_batch: The pass.
    """

    def __init__(self, pool: TokenToKVPool, slot_table: SlotTable, forward_batch: ForwardBatch) -> None:
        self._pool, self._table, self._slot_ids = pool, slot_table.table, forward_batch.slot_ids
        self._batch = forward_batch.batch
        self._words: Tensor | None = None
        self._num_tiles = 0

    def __call__(self, qkv: Tensor, rotary: Rotary | None, *, layer_id: int) -> Tensor:
        """See `Attend`."""
        keys, values = self._pool.layer(layer_id)
        rotate_and_store(qkv, rotary, self._slot_ids, keys, values)
        groups = self._pool.num_groups
        heads, dim = qkv.shape[1] - 2 * groups, qkv.shape[2]
        if self._words is None:
            words, self._num_tiles = _extend_plan(self._batch, tile_tokens(heads // groups))
            self._words = torch.from_numpy(words).to(qkv.device, non_blocking=True)
        tiles = self._words[: 2 * self._num_tiles].view(2, -1)
        row_ids, starts, prefix_lens, extend_lens = self._words[2 * self._num_tiles :].view(4, -1)
        out = torch.empty((qkv.shape[0], heads, dim), dtype=qkv.dtype, device=qkv.device)
        attend_extend(
            qkv[:, :heads],
            keys,
            values,
            table=self._table,
            row_ids=row_ids,
            tiles=tiles,
            token_starts=starts,
            prefix_lens=prefix_lens,
            extend_lens=extend_lens,
            out=out,
            scale=dim**-0.5,
        )
        return out


def _extend_plan(batch: Batch, step: int) -> tuple[IntArray, int]:
    """Tiles of `step` tokens, then what is known of each row, in one array; and how many tiles there are."""
    counts = -(-batch.extend_lens // step)
    rows = np.repeat(np.arange(batch.size, dtype=np.int32), counts)
    firsts = (np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)) * step
    starts = np.cumsum(batch.extend_lens) - batch.extend_lens
    parts = (rows, firsts, batch.row_ids, starts, batch.prefix_lens, batch.extend_lens)
    return np.concatenate(parts).astype(np.int32), len(rows)
