"""How deep an automaton must still go: the levels that have to be opened to reach the end, state by state.

Level by level, each state, edge and place to return to is looked at once; a step takes all states that are as far from
the end at once.
"""

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.graph import Flags, Indices, InverseEdges, Table, spans, without_repeats


class _Groups:
    """Numbers by the group that they belong to.

    Args:
        groups: (N,) the group of each number.
        values: (N,) the numbers.
        num_groups: Number of groups.
    """

    def __init__(self, groups: Indices, values: Indices, num_groups: int) -> None:
        self._values = values[np.argsort(groups, kind="stable")]
        self._counts: Indices = np.bincount(groups, minlength=num_groups)
        self._offsets: Indices = np.cumsum(self._counts) - self._counts

    def of(self, groups: Indices) -> Indices:
        """The numbers in some groups."""
        return self._values[spans(self._offsets[groups], self._counts[groups])]


class Pushes:
    """The push edges of a table, with the states that each may return to.

    Args:
        callers: (N,) the state that each edge leaves.
        callees: (N,) the state that each goes to.
        places: (N,) where the states to return to begin in `returns`.
        returns: (R,) int32, states to return to, -1 for none; a slice ends where the next one begins.
        num_states: Number of states.
    """

    def __init__(
        self, callers: Indices, callees: Indices, places: Indices, returns: NDArray[np.int32], num_states: int
    ) -> None:
        self.callers = callers
        self.callees = callees
        starts: Indices
        starts, self.slice_of = np.unique(places, return_inverse=True)
        self.num_slices = len(starts)
        counts: Indices = np.diff(np.append(starts, len(returns)))
        behind = returns[spans(starts, counts)].astype(np.int64)
        slices = np.repeat(np.arange(self.num_slices), counts)
        self.slices_with = _Groups(behind[behind >= 0], slices[behind >= 0], num_states)
        numbers = np.arange(len(callers))
        self.by_slice = _Groups(self.slice_of, numbers, self.num_slices)
        self.by_callee = _Groups(callees, numbers, num_states)


def needed_depth(plain: Table, ends: Flags, pushes: Pushes) -> NDArray[np.int32]:
    """How many levels must be opened, one in another, from each state to an end.

    Args:
        plain: (S, K) int32, plain edges: the next state by class, -1 for none.
        ends: (S,) whether the output, or the callee, may end at a state.
        pushes: The edges that open a level.

    Returns:
        (S,) int32; S for states that reach no end.
    """
    num_states = len(plain)
    needed = np.full(num_states, num_states, dtype=np.int32)
    inverse = InverseEdges(plain, loops=False)
    stamps: Indices = np.empty(max(num_states, pushes.num_slices), dtype=np.int64)
    # Slices with a state from which the end is near enough.
    is_open = np.zeros(pushes.num_slices, dtype=bool)
    depth, frontier = 0, np.flatnonzero(ends)
    while len(frontier):
        reached = []
        while len(frontier):
            needed[frontier] = depth
            reached.append(frontier)
            slices = pushes.slices_with.of(frontier)
            slices = without_repeats(slices[~is_open[slices]], stamps)
            is_open[slices] = True
            edges = pushes.by_slice.of(slices)
            edges = edges[needed[pushes.callees[edges]] < depth]
            sources = np.concatenate([inverse.sources(frontier), pushes.callers[edges]])
            frontier = without_repeats(sources[needed[sources] > depth], stamps)
        # Callees that need this depth may be called from the next one on.
        edges = pushes.by_callee.of(np.concatenate(reached))
        sources = pushes.callers[edges[is_open[pushes.slice_of[edges]]]]
        frontier = without_repeats(sources[needed[sources] > depth], stamps)
        depth += 1
    return needed
