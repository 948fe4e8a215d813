"""Token masks on the host: which tokens keep an automaton alive, as packed rows of bits.

The mask of a state has two parts.  One does not depend on the stack: tokens that stay inside the callee.  The others
pop, and go on where the callee was called: they are walked from there once that place is known, and remembered by it.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.automaton import ByteAutomaton, Stack
from sgl_runtime.grammar.counting_masks import CountingMasks
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder
from sgl_runtime.grammar.vocabulary_walk import Prefixes, VocabularyWalk, Ways

MaskRow = NDArray[np.int32]

_FORGOTTEN_AT_ONCE = 16
"""Masks of grammars that are gone, forgotten for each new mask."""


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
    pending: Prefixes
    deeper: "dict[int, _Mask]" = field(default_factory=dict)
    ways: Ways | None = None


@dataclass(frozen=True)
class _Counting:
    """A state that counts characters.

    Attributes:
        least, most: Limits on the number of characters to come; what no token can reach is cut.
        label: With which the string ends.
    """

    least: int
    most: int
    label: int


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
    mask = _Mask(*VocabularyWalk(automaton, order, depth=len(stack), max_depth=max_depth).run(_seed(state)))
    for depth in range(len(stack) - 1, -1, -1):
        if not mask.pending:
            break
        mask = _deeper_mask(automaton, mask, stack[depth], order, depth=depth, max_depth=max_depth)
    return mask.row


def _seed(state: int) -> Prefixes:
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
    row, pending = VocabularyWalk(automaton, order, depth=depth, max_depth=max_depth).run(seeds)
    return _Mask(mask.row | row, pending)


def _ways_to(pending: Prefixes, order: VocabularyOrder) -> Ways:
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


K = TypeVar("K", bound=Hashable)


class _MaskStore(Generic[K]):
    """Masks by key; those that were used least recently leave when all take too much memory.

    Args:
        max_bytes: Most memory that they take.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._masks: OrderedDict[K, _Mask] = OrderedDict()
        self.num_bytes = 0

    def get(self, key: K) -> _Mask | None:
        """The mask, which counts as used now."""
        mask = self._masks.get(key)
        if mask is not None:
            self._masks.move_to_end(key)
        return mask

    def put(self, key: K, mask: _Mask) -> None:
        """Keep a mask; the newest one stays whatever it takes."""
        self._masks[key] = mask
        self.grow(_num_bytes(mask))

    def grow(self, num_bytes: int) -> None:
        """A mask that is kept takes so much more."""
        self.num_bytes += num_bytes
        while self.num_bytes > self._max_bytes and len(self._masks) > 1:
            self.forget(next(iter(self._masks)))

    def forget(self, key: K) -> None:
        """Keep a mask no longer, if it is still there."""
        mask = self._masks.pop(key, None)
        if mask is not None:
            self.num_bytes -= _num_bytes(mask)


class TokenMaskCache:
    """Remembers the masks of states that were visited.

    Args:
        order: The vocabulary.
        max_bytes: Most memory that they take; a fourth of it is for parts that automata share.
    """

    def __init__(self, order: VocabularyOrder, *, max_bytes: int) -> None:
        self.order = order
        self._masks: _MaskStore[tuple[int, int]] = _MaskStore(max_bytes - max_bytes // 4)
        # Masks of states in parts that automata share, without what depends on the stack.
        self._shared: _MaskStore[Hashable] = _MaskStore(max_bytes // 4)
        # The states of each automaton that have masks, and the automata of which nobody has a grammar any more.
        self._visited: dict[int, set[int]] = {}
        self._unused: deque[int] = deque()
        self._counting = CountingMasks(order)

    @property
    def num_bytes(self) -> int:
        """Memory that all masks take."""
        return self._masks.num_bytes + self._shared.num_bytes

    def release(self, automaton_id: int) -> None:
        """Nobody will ask for masks of an automaton any more; any thread may call this, at any time."""
        self._unused.append(automaton_id)

    def row(self, automaton: ByteAutomaton, automaton_id: int, state: int, stack: Stack) -> MaskRow:
        """The row of a state; not to be written to.

        Args:
            automaton: The automaton.
            automaton_id: A number that no other automaton of this cache has ever had.
            state: One of its states.
            stack: What it remembers.
        """
        mask = self._masks.get((automaton_id, state))
        if mask is None:
            mask = self._first(automaton, state)
            self._forget_unused()
            self._visited.setdefault(automaton_id, set()).add(state)
            self._masks.put((automaton_id, state), mask)
        depth = len(stack)
        while mask.pending and depth:
            depth -= 1
            deeper = mask.deeper.get(stack[depth])
            if deeper is None:
                deeper = mask.deeper[stack[depth]] = _deeper_mask(automaton, mask, stack[depth], self.order)
                self._masks.grow(_num_bytes(deeper))
            mask = deeper
        return mask.row

    def _first(self, automaton: ByteAutomaton, state: int) -> _Mask:
        """The mask of a state as far as it does not depend on the stack."""
        key = self._shared_key(automaton, state)
        if key is not None:
            shared = self._shared.get(key)
            if shared is None:
                if isinstance(key, _Counting):
                    shared = _Mask(*self._counting.mask(key.least, key.most, key.label))
                else:
                    shared = self._walked(automaton, state)
                self._shared.put(key, shared)
            return _Mask(shared.row, shared.pending)
        for twins in automaton.twins:
            if twins.first_state <= state < twins.first_state + len(twins.originals):
                return self._twin(automaton, state, twins.originals[state - twins.first_state])
        return self._walked(automaton, state)

    def _walked(self, automaton: ByteAutomaton, state: int) -> _Mask:
        return _Mask(*VocabularyWalk(automaton, self.order).run(_seed(state)))

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
                return _Counting(min(max(counting.least - num_read, 0), longest), to_come, counting.label)
        return None

    def _twin(self, automaton: ByteAutomaton, state: int, original: int) -> _Mask:
        """The mask of a twin: that of its original, with labels of its own where that pops."""
        key = self._shared_key(automaton, original)
        mask = None if key is None else self._shared.get(key)
        if mask is None:
            mask = self._walked(automaton, original)
            if key is not None:
                self._shared.put(key, mask)
        if not mask.pending:
            return _Mask(mask.row, {})
        if mask.ways is None:
            mask.ways = _ways_to(mask.pending, self.order)
            if key is not None:
                self._shared.grow(sum(level.nbytes for level in mask.ways))
        _, pending = VocabularyWalk(automaton, self.order, ways=mask.ways).run(_seed(state))
        return _Mask(mask.row, pending)

    def _forget_unused(self) -> None:
        """Forget masks that nobody will ask for: a few for each new one, so that no request waits for thousands."""
        for _ in range(_FORGOTTEN_AT_ONCE):
            if not self._unused:
                return
            automaton_id = self._unused[0]
            states = self._visited.get(automaton_id)
            if states:
                self._masks.forget((automaton_id, states.pop()))
            else:
                self._visited.pop(automaton_id, None)
                self._unused.popleft()


def _num_bytes(mask: _Mask) -> int:
    own = mask.row.nbytes + sum(nodes.nbytes + labels.nbytes for nodes, labels in mask.pending.values())
    ways = 0 if mask.ways is None else sum(level.nbytes for level in mask.ways)
    return own + ways + sum(map(_num_bytes, mask.deeper.values()))
