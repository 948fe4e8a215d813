"""Token masks on the host: which tokens keep an automaton alive, as packed rows of bits.

The mask of a state has two parts.  One does not depend on the stack: tokens that stay inside the callee.  The others
pop, and go on where the callee was called: they are walked from there once that place is known, and remembered by it.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.automaton import FIRST_SPECIAL, ByteAutomaton, Stack
from sgl_runtime.grammar.graph import spans
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder

MaskRow = NDArray[np.int32]
Indices = NDArray[np.int32]

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


@dataclass
class _Mask:
    """The mask of a state as far as some of the stack is known.

    Attributes:
        row: The tokens that are allowed whatever lies deeper.
        pending: By level, the prefixes that pop what lies deeper, with the label.
        deeper: The masks by what lies there.
        ways: By level, the prefixes that lead to those of `pending`; None until they are asked for.
    """

    row: MaskRow
    pending: dict[int, tuple[Indices, Indices]]
    deeper: "dict[int, _Mask]" = field(default_factory=dict)
    ways: "list[NDArray[np.bool_]] | None" = None


class _FramePool:
    """What the tokens of a walk have pushed: linked frames, frame 0 stands for the request's stack."""

    def __init__(self, depth: int) -> None:
        self.remembered: Indices = np.zeros(1, dtype=np.int32)
        self.below: Indices = np.zeros(1, dtype=np.int32)
        self.depth: Indices = np.full(1, depth, dtype=np.int32)

    def push(self, remembered: Indices, frames: Indices) -> Indices:
        first = len(self.remembered)
        self.remembered = np.concatenate([self.remembered, remembered])
        self.below = np.concatenate([self.below, frames])
        self.depth = np.concatenate([self.depth, self.depth.take(frames) + 1])
        return np.arange(first, len(self.remembered), dtype=np.int32)


class _Walk:
    """Walks the vocabulary through an automaton, all tokens at once, byte position by byte position.

    Neighbours share prefixes and die together: a level looks only at the children of prefixes that are alive.
    """

    def __init__(
        self,
        automaton: ByteAutomaton,
        order: VocabularyOrder,
        *,
        depth: int = 0,
        max_depth: int | None = None,
        ways: "list[NDArray[np.bool_]] | None" = None,
    ) -> None:
        self._automaton = automaton
        self._order = order
        self._max_depth = max_depth
        # By level, the prefixes to look at; None for all.
        self._ways = ways
        self._next_state = automaton.table.ravel()
        self._width = automaton.table.shape[1]
        self._pool = _FramePool(depth)
        self._allowed = np.zeros((order.size + 31) // 32 * 32, dtype=bool)
        self._pending: dict[int, tuple[Indices, Indices]] = {}

    def run(self, seeds: dict[int, tuple[Indices, Indices]]) -> _Mask:
        """Walk on from prefixes, by level: their indices, and the state behind each."""
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
            front = self._step(depth, front) if depth < len(order.levels) else None
        return _Mask(np.packbits(self._allowed, bitorder="little").view(np.int32), self._pending)

    def _with_seeds(self, front: _Front | None, nodes: Indices, states: Indices) -> _Front:
        frames = np.full(len(nodes), _UNKNOWN_FRAME, dtype=np.int32)
        if front is None or not len(front.nodes):
            return _Front(nodes, states, frames)
        return _Front(
            np.concatenate([front.nodes, nodes]),
            np.concatenate([front.states, states]),
            np.concatenate([front.frames, frames]),
        )

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


def compute_mask(
    automaton: ByteAutomaton, state: int, stack: Stack, order: VocabularyOrder, *, max_depth: int | None = None
) -> MaskRow:
    """The tokens that lead from a state, with what it remembers, to some state.

    Args:
        automaton: The automaton.
        state: One of its states.
        stack: What it remembers.
        order: The vocabulary.
        max_depth: Most levels of the stack; tokens from which the output could not be completed within are left out.

    Returns:
        (ceil(V / 32),) int32; bit i % 32 of word i // 32 stands for token i.
    """
    walk = _Walk(automaton, order, depth=len(stack), max_depth=max_depth)
    mask = walk.run(_seed(state))
    for depth in range(len(stack) - 1, -1, -1):
        if not mask.pending:
            break
        mask = _deeper_mask(automaton, mask, stack[depth], order, depth=depth, max_depth=max_depth)
    return mask.row


def _seed(state: int) -> dict[int, tuple[Indices, Indices]]:
    return {0: (np.zeros(1, dtype=np.int32), np.array([state], dtype=np.int32))}


def _deeper_mask(
    automaton: ByteAutomaton,
    mask: _Mask,
    remembered: int,
    order: VocabularyOrder,
    *,
    depth: int = 0,
    max_depth: int | None = None,
) -> _Mask:
    """A mask with what follows once it is known what a pop leads back to."""
    seeds = {}
    for level, (nodes, labels) in mask.pending.items():
        states = automaton.returns.take(remembered + labels)
        seeds[level] = (nodes[states >= 0], states[states >= 0])
    deeper = _Walk(automaton, order, depth=depth, max_depth=max_depth).run(seeds)
    return _Mask(mask.row | deeper.row, deeper.pending)


def _ways_to(pending: dict[int, tuple[Indices, Indices]], order: VocabularyOrder) -> list[NDArray[np.bool_]]:
    """By level, the prefixes that lead to pending ones, which are among them."""
    ways = [np.zeros(len(level.byte), dtype=bool) for level in order.levels]
    for depth in range(len(order.levels), 0, -1):
        if depth in pending:
            ways[depth - 1][pending[depth][0]] = True
        if depth > 1:
            (wanted,) = np.nonzero(ways[depth - 1])
            parents = np.searchsorted(order.levels[depth - 2].first_child, wanted, side="right") - 1
            ways[depth - 2][parents] = True
    return ways


class TokenMaskCache:
    """Remembers the masks of states that were visited, the least recently used ones leave first.

    Args:
        order: The vocabulary.
        max_bytes: Most memory that rows take.
    """

    def __init__(self, order: VocabularyOrder, *, max_bytes: int) -> None:
        self.order = order
        self._max_rows = max(1, max_bytes // (4 * ((order.size + 31) // 32)))
        self._num_rows = 0
        self._masks: OrderedDict[tuple[int, int], _Mask] = OrderedDict()
        # Masks of states in parts that automata share, without what depends on the stack.
        self._shared: OrderedDict[Hashable, _Mask] = OrderedDict()

    def row(self, automaton: ByteAutomaton, automaton_id: int, state: int, stack: Stack) -> MaskRow:
        """The row of a state; not to be written to.

        Args:
            automaton: The automaton.
            automaton_id: A number that no other automaton of this cache has ever had.
            state: One of its states.
            stack: What it remembers.
        """
        key = (automaton_id, state)
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = self._first(automaton, state)
            self._forget_oldest()
        else:
            self._masks.move_to_end(key)
        depth = len(stack)
        while mask.pending and depth:
            depth -= 1
            deeper = mask.deeper.get(stack[depth])
            if deeper is None:
                deeper = mask.deeper[stack[depth]] = _deeper_mask(automaton, mask, stack[depth], self.order)
                self._num_rows += 1
            mask = deeper
        return mask.row

    def _first(self, automaton: ByteAutomaton, state: int) -> _Mask:
        """The mask of a state as far as it does not depend on the stack."""
        self._num_rows += 1
        key = self._shared_key(automaton, state)
        if key is not None:
            shared = self._shared.get(key)
            if shared is None:
                shared = self._shared[key] = _Walk(automaton, self.order).run(_seed(state))
            return _Mask(shared.row, shared.pending)
        for twins in automaton.twins:
            if twins.first_state <= state < twins.first_state + len(twins.originals):
                return self._twin(automaton, state, twins.originals[state - twins.first_state])
        return _Walk(automaton, self.order).run(_seed(state))

    def _shared_key(self, automaton: ByteAutomaton, state: int) -> Hashable:
        """What masks of other automata are the same; None for none."""
        for part in automaton.parts:
            if part.first_state <= state < part.first_state + part.num_states:
                return part.key, state - part.first_state
        for counting in automaton.counting:
            if counting.first_state <= state < counting.first_state + counting.num_states:
                # No token has more characters than bytes, nor more bytes than there are levels.
                longest = len(self.order.levels)
                num_read = state - counting.first_state
                to_come = longest if counting.most is None else min(counting.most - num_read, longest)
                return "counting", min(max(counting.least - num_read, 0), longest), to_come, counting.label
        return None

    def _twin(self, automaton: ByteAutomaton, state: int, original: int) -> _Mask:
        """The mask of a twin: that of its original, with labels of its own where that pops."""
        key = self._shared_key(automaton, original)
        mask = None if key is None else self._shared.get(key)
        if mask is None:
            mask = _Walk(automaton, self.order).run(_seed(original))
            if key is not None:
                self._shared[key] = mask
        if not mask.pending:
            return _Mask(mask.row, {})
        if mask.ways is None:
            mask.ways = _ways_to(mask.pending, self.order)
        pending = _Walk(automaton, self.order, ways=mask.ways).run(_seed(state)).pending
        return _Mask(mask.row, pending)

    def _forget_oldest(self) -> None:
        while self._num_rows > self._max_rows and len(self._masks) > 1:
            _, oldest = self._masks.popitem(last=False)
            self._num_rows -= _num_rows(oldest)
        while len(self._shared) > self._max_rows:
            self._shared.popitem(last=False)


def _num_rows(mask: _Mask) -> int:
    return 1 + sum(map(_num_rows, mask.deeper.values()))
