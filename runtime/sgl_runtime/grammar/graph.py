"""Whole-array steps on transition tables: reachability, inverse edges, trimming."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.budget import Budget

Table = NDArray[np.int32]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]


class InverseEdges:
    """The edges of a table by their target.

    Args:
        table: (S, C) int32, next state or -1.
    """

    def __init__(self, table: Table) -> None:
        source, column = np.nonzero(table >= 0)
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
    inverse = InverseEdges(table)
    frontier: Indices = np.flatnonzero(alive)
    while len(frontier):
        budget.spend(16)
        sources = inverse.sources(frontier)
        frontier = sources[~alive[sources]]
        alive[frontier] = True
    return alive


def trim(table: Table, accepting: Flags, start: int, budget: Budget) -> tuple[Table, Flags]:
    """Keep the states on some path from `start` to acceptance; `start` becomes state 0.

    Returns:
        The new table and flags. If nothing is accepted they hold state 0 alone, without edges.
    """
    order = reachable(table, start, budget)
    renumber = np.full(len(table) + 1, -1, dtype=np.int32)
    renumber[order] = np.arange(len(order))
    table, accepting = renumber[table[order]], accepting[order]
    alive = co_reachable(table, accepting, budget)
    if not alive[0]:
        return np.full((1, table.shape[1]), -1, dtype=np.int32), np.zeros(1, dtype=bool)
    renumber = np.full(len(table) + 1, -1, dtype=np.int32)
    renumber[:-1][alive] = np.arange(int(alive.sum()))
    return renumber[table[alive]], accepting[alive]
