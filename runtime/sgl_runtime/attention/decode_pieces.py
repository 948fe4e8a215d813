"""How the contexts of a decode pass are cut into pieces that keep every multiprocessor busy."""

from dataclasses import dataclass

import numpy as np

from sgl_runtime.batch import IntArray

MIN_PIECE = 128
"""Positions below which a piece is not worth its merge."""


@dataclass(frozen=True)
class DecodePieces:
    """See the arguments of `attend_pieces`.

    Attributes:
        pieces: (4, n) int32: row, begin, end, place of the partial result or -1.
        firsts, num_pieces: (B,) int32.
    """

    pieces: IntArray
    firsts: IntArray
    num_pieces: IntArray

    @property
    def count(self) -> int:
        """N."""
        return int(self.pieces.shape[1])


def cut(lengths: IntArray, *, extra: int) -> DecodePieces:
    """Cut contexts into at most B + `extra` pieces of about equal length.

    Args:
        lengths: (B,) context lengths, at least 1.
        extra: How many pieces more than rows there may be.

    Returns:
        The pieces, longest contexts first.
    """
    size = max(MIN_PIECE, -(-int(lengths.sum()) // max(extra, 1)))
    counts = np.maximum(lengths // size, 1).astype(np.int64)
    order = np.argsort(-lengths, kind="stable")
    rows = np.repeat(order, counts[order])
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts[order]) - counts[order], counts[order])
    begins = lengths[rows].astype(np.int64) * within // counts[rows]
    ends = lengths[rows].astype(np.int64) * (within + 1) // counts[rows]
    is_split = counts > 1
    # Partial results of a row lie one behind another, in the order of the rows.
    taken = np.where(is_split, counts, 0)
    firsts = np.cumsum(taken) - taken
    places = np.where(is_split[rows], firsts[rows] + within, -1)
    return DecodePieces(
        pieces=np.stack([rows, begins, ends, places]).astype(np.int32),
        firsts=firsts.astype(np.int32),
        num_pieces=counts.astype(np.int32),
    )
