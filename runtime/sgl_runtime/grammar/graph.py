"""Whole-array steps on transition tables: reachability, inverse edges, trimming."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.budget import Budget

Table = NDArray[np.int32]
Flags = NDArray[np.bool_]
Labels = NDArray[np.int32]
Indices = NDArray[np.int64]


class InverseEdges:
    """The edges of a table by their target.

    Args:
        table: (S, C) int32, next state or -1.
        loops: Whether edges that lead back to the same state count.
    """

    def __init__(self, table: Table, *, loops: bool) -> None:
        # Most edges lead where the one beside them leads: one of these will do.
        is_needed = table >= 0
        is_needed[:, 1:] &= table[:, 1:] != table[:, :-1]
        if not loops:
            is_needed &= table != np.arange(len(table), dtype=table.dtype)[:, None]
        source, column = np.nonzero(is_needed)
        target = table[source, column]
        order = np.argsort(target, kind="stable")
        self._sources: Indices = source[order]
        self._counts: Indices = np.bincount(target, minlength=len(table))
        self._offsets: Indices = np.cumsum(self._counts) - self._counts
        self._stamps: Indices = np.empty(len(table), dtype=np.int64)

    def sources(self, targets: Indices) -> Indices:
        """States with an edge into one of `targets`, each once."""
        return without_repeats(self._sources[spans(self._offsets[targets], self._counts[targets])], self._stamps)


def without_repeats(values: Indices, stamps: Indices) -> Indices:
    """Each value once, without sorting.

    Args:
        values: Indices into `stamps`.
        stamps: Room to work in, its content does not matter.
    """
    places = np.arange(len(values))
    stamps[values] = places
    is_last: Flags = stamps[values] == places
    return values[is_last]


def distinct_rows(rows: NDArray[np.integer]) -> tuple[Indices, Indices]:
    """Find the distinct rows of a matrix.

    Args:
        rows: (N, K) integers.

    Returns:
        (M,) the first place of each distinct row, and (N,) for each row the number of the one that it equals.
    """
    weights = np.random.default_rng(0).integers(1, 2**63, size=rows.shape[1], dtype=np.uint64) | np.uint64(1)
    keys = rows.astype(np.uint64) @ weights
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if not np.array_equal(rows[first][inverse], rows):
        # Two rows have one key: compare whole rows.
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, inverse.ravel()


AnyIndices = TypeVar("AnyIndices", NDArray[np.int32], NDArray[np.int64])


def spans(starts: AnyIndices, counts: AnyIndices) -> AnyIndices:
    """The concatenation of start .. start + count - 1 over all pairs."""
    ends = np.cumsum(counts, dtype=starts.dtype)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + counts, counts) + np.arange(total, dtype=starts.dtype)


def reachable(table: Table, start: int, budget: Budget) -> Indices:
    """States that can be reached from `start`, in breadth-first order."""
    seen = np.zeros(len(table), dtype=bool)
    seen[start] = True
    stamps: Indices = np.empty(len(table), dtype=np.int64)
    frontier: Indices = np.array([start])
    order = [frontier]
    while len(frontier):
        budget.spend(16)
        targets = table[frontier].ravel()
        targets = targets[targets >= 0]
        frontier = without_repeats(targets[~seen[targets]].astype(np.int64), stamps)
        seen[frontier] = True
        order.append(frontier)
    return np.concatenate(order)


def co_reachable(table: Table, accepting: Flags, budget: Budget) -> Flags:
    """Which states can reach an accepting state."""
    alive = accepting.copy()
    inverse = InverseEdges(table, loops=False)
    frontier: Indices = np.flatnonzero(alive)
    while len(frontier):
        budget.spend(16)
        sources = inverse.sources(frontier)
        frontier = sources[~alive[sources]]
        alive[frontier] = True
    return alive


def trim(table: Table, accepting: Flags, start: int, budget: Budget) -> tuple[Table, Flags]:
    """`trim_labelled` for an automaton that accepts or does not."""
    table, labels = trim_labelled(table, as_labels(accepting), start, budget)
    return table, labels >= 0


def trim_labelled(table: Table, labels: Labels, start: int, budget: Budget) -> tuple[Table, Labels]:
    """Keep the states on some path from `start` to a label; `start` becomes state 0.

    Args:
        table: (S, C) int32, next state or -1.
        labels: (S,) int32, -1 for none.
        start: The state to start from.
        budget: Paid for every step.

    Returns:
        The new table and labels. If no label is reached they hold state 0 alone, without edges.
    """
    order = reachable(table, start, budget)
    renumber = np.full(len(table) + 1, -1, dtype=np.int32)
    renumber[order] = np.arange(len(order))
    table, labels = renumber[table[order]], labels[order]
    alive = co_reachable(table, labels >= 0, budget)
    if not alive[0]:
        return np.full((1, table.shape[1]), -1, dtype=np.int32), np.full(1, -1, dtype=np.int32)
    if alive.all():
        return table, labels
    renumber = np.full(len(table) + 1, -1, dtype=np.int32)
    renumber[:-1][alive] = np.arange(int(alive.sum()))
    return renumber[table[alive]], labels[alive]


def as_labels(accepting: Flags) -> Labels:
    """Label 0 where an automaton accepts."""
    return accepting.astype(np.int32) - 1
