"""Triton attention: split-KV kernels for decode passes, tiles of queries for the others, over slots of any order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgl_runtime.attention.base import Attend, Rotary
from sgl_runtime.attention.decode_pieces import DecodePieces, cut, extra_pieces
from sgl_runtime.batch import Batch, IntArray, SharedRange
from sgl_runtime.device.kernels.decode_attention import PIECE_WORDS, attend_pieces
from sgl_runtime.device.kernels.extend_attention import BegunRows, attend_extend, tile_tokens
from sgl_runtime.device.kernels.rotary import rotate_and_store
from sgl_runtime.device.kernels.shared_attention import attend_shared, members_of_tile
from sgl_runtime.device.ops import HeadNorms, Ops
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool


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
        self._members = members_of_tile(pool.num_heads // pool.num_groups)

    @property
    def captured(self) -> "TritonAttention":
        """See `AttentionBackend`."""
        return self

    @property
    def members(self) -> int:
        """Rows that a tile over a shared range holds."""
        return self._members

    def prepare(self, forward_batch: ForwardBatch) -> Attend:
        """See `AttentionBackend`."""
        batch = forward_batch.batch
        device = forward_batch.input_ids.device
        if batch.kind == "decode":
            plan = self.cut(batch, batch.shared_ranges)
            layout = PlanLayout(batch.size, num_tiles=len(plan.tiles), members=self._members, places=plan.num_places)
            words = np.zeros(layout.num_words, dtype=np.int32)
            layout.fill(words, batch.row_ids, plan)
            return self.decode(forward_batch.slot_ids, torch.from_numpy(words).to(device, non_blocking=True), layout)
        return TritonExtend(self._pool, self._table, forward_batch)

    def cut(self, batch: Batch, shared: Sequence[SharedRange]) -> DecodePieces:
        """How a decode pass is cut into pieces, with tiles over shared ranges."""
        return cut(batch.context_lens, extra=extra_pieces(batch.size), shared=shared, members=self._members)

    def decode(self, slot_ids: Tensor, words: Tensor, layout: "PlanLayout") -> "TritonDecode":
        """The attend of a decode pass.

        Args:
            slot_ids: (B,) slots of the new tokens.
            words: What `layout` says, on the device.
            layout: Where in it everything lies.
        """
        return TritonDecode(self._pool, self._table, slot_ids, words, layout)


class PlanLayout:
    """Where what the kernels of a decode pass must know lies in one array, which is copied at once.

    Args:
        size: Rows of the pass, those included that only fill it up.
        num_tiles: Room for tiles over shared ranges.
        members: Rows of a tile.
        places: Room for partial results.
    """

    def __init__(self, size: int, *, num_tiles: int, members: int, places: int) -> None:
        self.size, self.num_tiles, self.members = size, num_tiles, members
        self.places = max(places, 1)
        self._tile_words = 2 + 2 * members
        lengths = (PIECE_WORDS * (size + extra_pieces(size)), 2, size, num_tiles * self._tile_words)
        ends = np.cumsum(lengths).tolist()
        self._spans = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        self.num_words: int = ends[-1]

    def parts(self, words: Any) -> list[Any]:
        """Views of the parts of an array or tensor.

        Pieces (N, PIECE_WORDS); the numbers of pieces and of tiles (2,); the row of the table of each row (size,);
        tiles (T, 2 + 2 M).
        """
        pieces, counts, row_ids, tiles = (words[span] for span in self._spans)
        return [
            pieces.reshape(-1, PIECE_WORDS),
            counts,
            row_ids,
            tiles.reshape(self.num_tiles, self._tile_words),
        ]

    def fits(self, plan: DecodePieces) -> bool:
        """Whether a plan has room."""
        return len(plan.tiles) <= self.num_tiles and plan.num_places <= self.places

    def fill(self, words: IntArray, row_ids: IntArray, plan: DecodePieces) -> None:
        """Write a plan of at most `size` rows.

        Args:
            words: (num_words,), written.
            row_ids: (B,) rows of the table.
            plan: The pieces.
        """
        pieces, counts, rows, tiles = self.parts(words)
        pieces[: plan.count] = plan.pieces
        pieces[: plan.count, 1] = row_ids[plan.pieces[:, 0]]
        counts[:] = plan.count, len(plan.tiles)
        rows[: len(row_ids)] = row_ids
        tiles[: len(plan.tiles)] = plan.tiles


class TritonDecode:
    """See `Attend`; one new token a row.

    Args:
        pool: Keys and values.
        slot_table: Slots by row and position.
        slot_ids: (B,) slots of the new tokens.
        words: See `TritonAttention.decode`.
        layout: Of `words`.
    """

    def __init__(
        self, pool: TokenToKVPool, slot_table: SlotTable, slot_ids: Tensor, words: Tensor, layout: PlanLayout
    ) -> None:
        self._pool, self._table, self._slot_ids, self._layout = pool, slot_table.table, slot_ids, layout
        self._pieces, self._counts, self._row_ids, self._tiles = layout.parts(words)
        self._scratch: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(
        self, qkv: Tensor, rotary: Rotary | None, *, layer_id: int, head_norms: HeadNorms | None = None
    ) -> Tensor:
        """See `Attend`."""
        keys, values = self._pool.layer(layer_id)
        rotate_and_store(qkv, rotary, self._slot_ids, keys, values, head_norms=head_norms)
        heads, dim = qkv.shape[1] - 2 * self._pool.num_groups, qkv.shape[2]
        if self._scratch is None:
            shape = (self._layout.places, heads, dim)
            self._scratch = (
                torch.empty(shape, dtype=torch.float32, device=qkv.device),
                torch.empty(shape[:2], dtype=torch.float32, device=qkv.device),
                torch.zeros((qkv.shape[0], self._pool.num_groups), dtype=torch.int32, device=qkv.device),
            )
        partial_out, partial_lse, tickets = self._scratch
        out = torch.empty((qkv.shape[0], heads, dim), dtype=qkv.dtype, device=qkv.device)
        if len(self._tiles):
            attend_shared(
                qkv[:, :heads],
                keys,
                values,
                table=self._table,
                row_ids=self._row_ids,
                tiles=self._tiles,
                num_tiles=self._counts[1:],
                partial_out=partial_out,
                partial_lse=partial_lse,
                scale=dim**-0.5,
            )
        attend_pieces(
            qkv[:, :heads],
            keys,
            values,
            table=self._table,
            pieces=self._pieces,
            counts=self._counts,
            tickets=tickets,
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

    def __call__(
        self, qkv: Tensor, rotary: Rotary | None, *, layer_id: int, head_norms: HeadNorms | None = None
    ) -> Tensor:
        """See `Attend`."""
        keys, values = self._pool.layer(layer_id)
        rotate_and_store(qkv, rotary, self._slot_ids, keys, values, head_norms=head_norms)
        return self.attend(qkv, keys, values)

    def attend(self, qkv: Tensor, keys: Tensor, values: Tensor, *, begun: BegunRows | None = None) -> Tensor:
        """Attend what has been rotated and stored.

        Args:
            qkv: See `Attend`.
            keys, values: Of the layer.
            begun: What has been attended before; None: nothing.
        """
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
            begun=begun,
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
