"""How the contexts of a decode pass are cut into pieces that keep every multiprocessor busy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import IntArray, SharedRange

MIN_PIECE = 64
"""Positions below which a piece is not worth its merge."""

MIN_EXTRA = 128
"""Pieces that there may be more than rows, with few rows."""

FEW_ROWS = 32
"""Rows up to which half as many pieces fill the chip: about one for each program that there is room for at a time."""

EVEN = 1.2
"""The longest piece by the mean up to which pieces count as of one length."""

SHARED_TILES = 32
"""Tiles over a shared range that fill the chip; a range of fewer is split along its positions."""


@dataclass(frozen=True)
class DecodePieces:
    """See the arguments of `attend_pieces` and `attend_shared`.

    Attributes:
        pieces: (n, 8) int32, see `PIECE_WORDS`; the row of the table, which is not known here, is 0.
        tiles: (t, 2 + 2 M) int32.
        firsts, num_pieces: (B,) int32: where a row's partial results begin, and how many there are of pieces and tiles.
    """

    pieces: IntArray
    tiles: IntArray
    firsts: IntArray
    num_pieces: IntArray

    @property
    def count(self) -> int:
        """N."""
        return len(self.pieces)

    @property
    def num_places(self) -> int:
        """Partial results."""
        return int(self.num_pieces[self.num_pieces > 1].sum())


def extra_pieces(rows: int) -> int:
    """How many pieces more than rows there may be."""
    return max(MIN_EXTRA, rows)


def cut(lengths: IntArray, *, extra: int, shared: Sequence[SharedRange] = (), members: int = 1) -> DecodePieces:
    """Cut contexts into pieces of one row each, at most B + `extra` of about equal length, and tiles of several rows.

    Pieces of one length all take as long, so few of them do; where lengths differ, more pieces even it out, and the
    longest come first.  Measured on an H200 (`benchmarks/gpu_kernels.py --only decode --tune`).

    Args:
        lengths: (B,) context lengths, at least 1.
        extra: How many pieces more than rows there may be.
        shared: Ranges that several rows share, from the beginning of their contexts on; they end before the last
            position.
        members: Rows of a tile.
    """
    begins = np.zeros(len(lengths), dtype=np.int64)
    for part in shared:
        begins[part.rows] = part.end
    own = lengths.astype(np.int64) - begins
    # One row merges more pieces than it gains by; few rows, and those of one length, fill the chip with half of them.
    counts = _counts(own, extra // 4 if len(own) == 1 else extra // 2)
    if len(own) > FEW_ROWS and (own / counts).max() > EVEN * own.sum() / counts.sum():
        counts = _counts(own, extra)
    rows = np.repeat(np.arange(len(own)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    longest_first = np.argsort(-(own / counts)[rows], kind="stable")
    rows, within = rows[longest_first], within[longest_first]
    begins_of_pieces = begins[rows] + own[rows] * within // counts[rows]
    ends = begins[rows] + own[rows] * (within + 1) // counts[rows]
    splits = [_splits(part, members) for part in shared]
    totals = counts.copy()
    for part, count in zip(shared, splits, strict=True):
        totals[part.rows] += count
    # Partial results of a row lie one behind another: those of its own pieces first.
    taken = np.where(totals > 1, totals, 0)
    firsts = np.cumsum(taken) - taken
    places = np.where(totals[rows] > 1, firsts[rows] + within, -1)
    unknown = np.zeros_like(rows)
    columns = (rows, unknown, begins_of_pieces, ends, places, firsts[rows], totals[rows], counts[rows])
    return DecodePieces(
        pieces=np.stack(columns, axis=1).astype(np.int32),
        tiles=_tiles(shared, splits, (firsts + counts).astype(np.int32), members),
        firsts=firsts.astype(np.int32),
        num_pieces=totals.astype(np.int32),
    )


def _counts(own: NDArray[np.int64], wanted: int) -> NDArray[np.int64]:
    """How many pieces each row is cut into, about `wanted` together."""
    size = max(MIN_PIECE, -(-int(own.sum()) // max(wanted, 1)))
    counts: NDArray[np.int64] = np.maximum((own + size // 2) // size, 1)
    return counts


def _splits(part: SharedRange, members: int) -> int:
    tiles = -(-len(part.rows) // members)
    return max(1, min(SHARED_TILES // tiles, (part.end - part.begin) // MIN_PIECE))


def _tiles(shared: Sequence[SharedRange], splits: Sequence[int], places: IntArray, members: int) -> IntArray:
    """The tiles of all ranges; `places` holds the next free place of each row, and is counted up."""
    tiles: list[IntArray] = []
    for part, count in zip(shared, splits, strict=True):
        length = part.end - part.begin
        for split in range(count):
            span = (part.begin + length * split // count, part.begin + length * (split + 1) // count)
            for start in range(0, len(part.rows), members):
                rows = part.rows[start : start + members]
                tile = np.full(2 + 2 * members, -1, dtype=np.int32)
                tile[:2] = span
                tile[2 : 2 + len(rows)] = rows
                tile[2 + members : 2 + members + len(rows)] = places[rows]
                tiles.append(tile)
            places[part.rows] += 1
    return np.stack(tiles) if tiles else np.empty((0, 2 + 2 * members), dtype=np.int32)
