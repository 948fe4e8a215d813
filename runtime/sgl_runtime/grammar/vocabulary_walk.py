"""VocabularyWalk: all tokens at once through an automaton, byte position by byte position.

`token_mask` makes the masks of states from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.automaton import FIRST_SPECIAL, ByteAutomaton
from sgl_runtime.grammar.graph import spans
from sgl_runtime.grammar.vocabulary_order import Indices, VocabularyOrder

Ways = Sequence[NDArray[np.bool_]]
"""By level, the prefixes to look at."""

Prefixes = dict[int, tuple[Indices, Indices]]
"""By level, some prefixes, and the state behind each, or the label of the last pop."""

# A walk looks at whole levels once one in so many of the prefixes on a level is alive.
_WIDE_SHARE = 4
_UNKNOWN_FRAME = 0
"""What lies below everything that a token has pushed itself: the request's own stack."""


@dataclass(frozen=True)
class _Front:
    """Token prefixes of one length that are alive.

    Attributes:
        nodes: Indices on their level; for prefixes that have popped too far, of those.
        states: The state behind each, or the label of the last pop.
        frames: What each has pushed itself, as places in the pool of the walk.
    """

    nodes: Indices
    states: Indices
    frames: Indices


class _FramePool:
    """What the tokens of a walk have pushed: linked frames, frame 0 stands for the request's stack."""

    def __init__(self, depth: int) -> None:
        self.remembered: Indices = np.zeros(1, dtype=np.int32)
        self.below: Indices = np.zeros(1, dtype=np.int32)
        self.depth: Indices = np.full(1, depth, dtype=np.int32)

    @property
    def is_used(self) -> bool:
        """Whether anything has been pushed."""
        return len(self.remembered) > 1

    def push(self, remembered: Indices, frames: Indices) -> Indices:
        first = len(self.remembered)
        self.remembered = np.concatenate([self.remembered, remembered])
        self.below = np.concatenate([self.below, frames])
        self.depth = np.concatenate([self.depth, self.depth.take(frames) + 1])
        return np.arange(first, len(self.remembered), dtype=np.int32)


class VocabularyWalk:
    """One walk.

    Neighbours share prefixes and die together: a level looks only at the children of prefixes that are alive, or, where
    these are many, at all.

    Args:
        automaton: The automaton.
        order: The vocabulary.
        depth: Levels of the stack that the request has.
        max_depth: Most levels of the stack; prefixes from which the output could not be completed within are dead.
        ways: The prefixes to look at; None for all.
    """

    def __init__(
        self,
        automaton: ByteAutomaton,
        order: VocabularyOrder,
        *,
        depth: int = 0,
        max_depth: int | None = None,
        ways: Ways | None = None,
    ) -> None:
        self._automaton = automaton
        self._order = order
        self._max_depth = max_depth
        self._ways = ways
        self._next_state = automaton.table.ravel()
        self._width = automaton.table.shape[1]
        self._pool = _FramePool(depth)
        self._allowed = np.zeros((order.size + 31) // 32 * 32, dtype=bool)
        self._pending: Prefixes = {}

    def run(self, seeds: Prefixes) -> tuple[NDArray[np.int32], Prefixes]:
        """Walk on from some prefixes.

        Args:
            seeds: Their indices, and the state behind each.

        Returns:
            The tokens that stay alive, as a packed row; and the prefixes that pop what lies below all that they have
            pushed themselves, with the label.
        """
        order = self._order
        front: _Front | None = None
        last = max(seeds)
        for depth in range(min(seeds), len(order.levels) + 1):
            if depth in seeds:
                front = self._with_seeds(front, *seeds[depth])
                if self._max_depth is not None:
                    front = self._within_depth(front, self._max_depth)
            if front is None or not len(front.nodes):
                if depth >= last:
                    break
                continue
            if depth:
                self._mark(depth, front.nodes)
            if depth >= last and self._is_wide(depth, front):
                self._run_wide(depth, front)
                break
            front = self._step(depth, front) if depth < len(order.levels) else None
        return np.packbits(self._allowed, bitorder="little").view(np.int32), self._pending

    def _with_seeds(self, front: _Front | None, nodes: Indices, states: Indices) -> _Front:
        frames = np.full(len(nodes), _UNKNOWN_FRAME, dtype=np.int32)
        if front is None or not len(front.nodes):
            return _Front(nodes, states, frames)
        return _Front(
            np.concatenate([front.nodes, nodes]),
            np.concatenate([front.states, states]),
            np.concatenate([front.frames, frames]),
        )

    def _is_wide(self, depth: int, front: _Front) -> bool:
        """Whether so many prefixes of a length are alive that it pays to look at all that follow."""
        if not depth or self._ways is not None or self._max_depth is not None:
            return False
        return len(front.nodes) * _WIDE_SHARE >= len(self._order.levels[depth - 1].byte)

    def _run_wide(self, depth: int, front: _Front) -> None:
        """Walk on from prefixes of a length to the end, with a place for each prefix, dead or alive."""
        states = np.full(len(self._order.levels[depth - 1].byte), -1, dtype=np.int64)
        states[front.nodes] = front.states
        frames = np.full(len(states), _UNKNOWN_FRAME, dtype=np.int32)
        frames[front.nodes] = front.frames
        for above, level in enumerate(self._order.levels[depth:], start=depth):
            places = states.take(level.parent)
            is_dead = places < 0
            places *= self._width
            places += self._automaton.byte_classes.take(level.byte)
            entries = self._next_state.take(places, mode="clip")
            entries[is_dead] = -1
            if self._pool.is_used:
                frames = frames.take(level.parent)
            else:
                frames = np.full(len(entries), _UNKNOWN_FRAME, dtype=np.int32)
            (special,) = np.nonzero(entries <= FIRST_SPECIAL)
            if len(special):
                nodes = special.astype(np.int32)
                behind = self._take_special_edges(
                    above, nodes, entries.take(nodes), frames.take(nodes), np.arange(len(nodes))
                )
                entries[nodes] = -1
                entries[behind.nodes] = behind.states
                frames[behind.nodes] = behind.frames
            is_alive = entries >= 0
            if not is_alive.any():
                break
            self._allowed[level.token_ids[is_alive.take(level.token_prefix)]] = True
            states = entries.astype(np.int64)

    def _mark(self, depth: int, nodes: Indices) -> None:
        """Allow the tokens that are prefixes of this length which are alive."""
        level = self._order.levels[depth - 1]
        is_alive = np.zeros(len(level.byte), dtype=bool)
        is_alive[nodes] = True
        self._allowed[level.token_ids[is_alive.take(level.token_prefix)]] = True

    def _step(self, depth: int, front: _Front) -> _Front | None:
        """From prefixes of a length to those that are one byte longer."""
        order, automaton = self._order, self._automaton
        first_child = order.levels[depth - 1].first_child if depth else order.root_children
        begins = first_child.take(front.nodes)
        counts = first_child.take(front.nodes + 1) - begins
        children = spans(begins, counts)
        sources = np.repeat(np.arange(len(counts)), counts)
        if self._ways is not None:
            (looked_at,) = np.nonzero(self._ways[depth].take(children))
            children, sources = children.take(looked_at), sources.take(looked_at)
        if not len(children):
            return None
        level = order.levels[depth]
        entries = self._next_state.take(
            (front.states * self._width).take(sources) + automaton.byte_classes.take(level.byte.take(children))
        )
        (alive,) = np.nonzero(entries != -1)
        children, entries = children.take(alive), entries.take(alive)
        frames = front.frames.take(sources).take(alive)
        (special,) = np.nonzero(entries <= FIRST_SPECIAL)
        front = _Front(children, entries, frames)
        if len(special):
            front = self._take_special_edges(depth, children, entries, frames, special)
        return front if self._max_depth is None else self._within_depth(front, self._max_depth)

    def _within_depth(self, front: _Front, max_depth: int) -> _Front:
        """The prefixes from which the output can be completed without going too deep."""
        depth = self._pool.depth.take(front.frames) + self._automaton.needed_depth.take(front.states)
        (fits,) = np.nonzero(depth <= max_depth)
        return _Front(front.nodes.take(fits), front.states.take(fits), front.frames.take(fits))

    def _take_special_edges(
        self, depth: int, children: Indices, entries: Indices, frames: Indices, special: NDArray[np.int64]
    ) -> _Front:
        automaton = self._automaton
        edges = FIRST_SPECIAL - entries.take(special)
        targets, arguments = automaton.edge_target.take(edges), automaton.edge_argument.take(edges)
        pushes = special[targets >= 0]
        entries[pushes] = targets[targets >= 0]
        if self._max_depth is not None:
            # What comes behind what is opened must fit too.
            needed = self._pool.depth.take(frames[pushes]) + automaton.needed_behind.take(edges[targets >= 0])
            entries[pushes[needed > self._max_depth]] = -1
        frames[pushes] = self._pool.push(arguments[targets >= 0], frames[pushes])
        pops, labels = special[targets < 0], arguments[targets < 0]
        popped = frames.take(pops)
        unknown = popped == _UNKNOWN_FRAME
        if unknown.any():
            self._pending[depth + 1] = (children.take(pops[unknown]), labels[unknown])
        known = pops[~unknown]
        entries[known] = automaton.returns.take(self._pool.remembered.take(popped[~unknown]) + labels[~unknown])
        frames[known] = self._pool.below.take(popped[~unknown])
        entries[pops[unknown]] = -1
        (alive,) = np.nonzero(entries >= 0)
        return _Front(children.take(alive), entries.take(alive), frames.take(alive))
