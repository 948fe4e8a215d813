"""Which rows of a pass share which ranges of their contexts: a tree of prefixes, several levels deep."""

import numpy as np

from sgl_runtime.batch import IntArray, SharedRange

MIN_LENGTH = 128
"""Positions that a shared range has at least."""

MIN_SAVED = 1024
"""Reads of a position's keys and values that a shared range must save."""


def find_shared(
    slots: IntArray,
    row_ids: IntArray,
    lengths: IntArray,
    *,
    min_length: int = MIN_LENGTH,
    min_saved: int = MIN_SAVED,
) -> list[SharedRange]:
    """The ranges that are worth to be attended once for all their rows; those of one row follow each other from 0 on.

    A slot holds one token behind one prefix.  So where two rows have the same slot at a position, they have the same
    slots before it, and the end of what rows share can be searched by halving.

    Args:
        slots: (rows, positions) the host's table.
        row_ids: (B,) rows of the table.
        lengths: (B,) positions of each that may be shared.
        min_length, min_saved: See the defaults.
    """
    found: list[SharedRange] = []
    waiting = [(np.arange(len(row_ids)), 0, 0)]
    while waiting:
        rows, begin, at = waiting.pop()
        rows = rows[lengths[rows] > at]
        if len(rows) < 2:
            continue
        order = np.argsort(slots[row_ids[rows], at], kind="stable")
        rows = rows[order]
        firsts = slots[row_ids[rows], at]
        for family in np.split(rows, np.flatnonzero(np.diff(firsts)) + 1):
            if len(family) < 2:
                continue
            # What is left of the longest context bounds what any part of the family shares.
            room = int(lengths[family].max()) - begin
            if room < min_length or room * (len(family) - 1) < min_saved:
                continue
            end = _shared_end(slots, row_ids[family], at, int(lengths[family].min()))
            is_worth = end - begin >= min_length and (end - begin) * (len(family) - 1) >= min_saved
            if is_worth:
                found.append(SharedRange(family, begin, end))
            waiting.append((family, end if is_worth else begin, end))
    return found


def _shared_end(slots: IntArray, row_ids: IntArray, low: int, high: int) -> int:
    """The first position, up to `high`, at which the rows differ; they agree at `low`."""
    low += 1
    while low < high:
        middle = (low + high) // 2
        column = slots[row_ids, middle]
        if (column == column[0]).all():
            low = middle + 1
        else:
            high = middle
    return low
