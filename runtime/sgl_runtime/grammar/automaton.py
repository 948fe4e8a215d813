"""ByteAutomaton: the one form in which a constraint is enforced, a deterministic automaton over bytes with a stack.

An edge is plain (go to a state), a push (go to a callee's state and remember where to return to) or a pop (go to the
remembered place).  What is remembered is the start of a slice of `returns`; a callee ends with a label, which picks the
state in that slice.  Regexes and choices need plain edges only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.graph import Flags, Table, trim
from sgl_runtime.grammar.item_tracker import ItemTracker
from sgl_runtime.grammar.needed_depth import Pushes, needed_depth

DEAD = -1
FIRST_SPECIAL = -2
"""Entries of a table from here down are special edges: entry -2 - e is edge e."""

Stack = tuple[int, ...]
"""What is remembered, the newest last: places in `ByteAutomaton.returns`."""

_MAX_FORCED = 512
_NO_EDGES = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class SharedPart:
    """A range of states that is the same in every automaton that holds it, so that its masks can be shared.

    Attributes:
        key: What the part is.
        first_state: Where it lies in this automaton.
        num_states: How many states it has.
    """

    key: object
    first_state: int
    num_states: int


@dataclass(frozen=True)
class CountingStates:
    """States that count the characters of a free string, one behind the other; those with as many to come are alike.

    Attributes:
        first_state: Where they begin: no character has been read.
        num_states: How many there are.
        least, most: Limits on the number of characters; no upper one when `most` is None.
        label: With which the string ends.
    """

    first_state: int
    num_states: int
    least: int
    most: int | None
    label: int


@dataclass(frozen=True, eq=False)
class TwinStates:
    """States that allow what others do, and differ in the labels of their pops alone.

    Attributes:
        first_state: Where they begin.
        originals: The state that each is a twin of.
    """

    first_state: int
    originals: Sequence[int]


@dataclass(frozen=True, eq=False)
class ByteAutomaton:
    """An automaton in which every state can reach the end, whatever the stack; state 0 is the start.

    Attributes:
        byte_classes: (256,) uint8, the class of each byte.
        table: (S, K) int32: the next state by class, DEAD where the byte is not allowed, or a special edge.
        accepting: (S,) bool, whether the output may end here.
        edge_target: (E,) int32: the state that a push goes to; -1 for a pop.
        edge_argument: (E,) int32: what a push remembers; the label of a pop.
        returns: (R,) int32: states to return to, -1 where a label may not come.
        parts: Ranges of states that other automata share.
        counting, twins: States whose masks can be told from those of others.
        distinct: States behind the opening bracket of arrays whose items must differ, which the edges do not see to:
            see `ItemTracker`.
    """

    byte_classes: NDArray[np.uint8]
    table: Table
    accepting: Flags
    edge_target: NDArray[np.int32] = field(default_factory=lambda: _NO_EDGES)
    edge_argument: NDArray[np.int32] = field(default_factory=lambda: _NO_EDGES)
    returns: NDArray[np.int32] = field(default_factory=lambda: _NO_EDGES)
    parts: Sequence[SharedPart] = ()
    counting: Sequence[CountingStates] = ()
    twins: Sequence[TwinStates] = ()
    distinct: frozenset[int] = frozenset()

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return len(self.table)

    @property
    def is_regular(self) -> bool:
        """Whether there are plain edges only."""
        return not len(self.edge_target)

    @property
    def is_empty(self) -> bool:
        """Whether no output at all is accepted."""
        return not self.accepting.any()

    @property
    def size_bytes(self) -> int:
        """Memory that the tables take."""
        arrays = (self.table, self.accepting, self.byte_classes, self.edge_target, self.edge_argument, self.returns)
        return sum(array.nbytes for array in arrays)

    @cached_property
    def opening_bytes(self) -> bytes:
        """The bytes that can open a level."""
        # Few classes have special edges at all.
        (special,) = np.nonzero(self.table.min(axis=0, initial=DEAD) <= FIRST_SPECIAL)
        entries = np.minimum(self.table[:, special], FIRST_SPECIAL + 1)
        is_opening = np.zeros(self.table.shape[1], dtype=bool)
        is_opening[special] = np.append(self.edge_target >= 0, False)[FIRST_SPECIAL - entries].any(axis=0)
        return bytes(np.flatnonzero(is_opening[self.byte_classes]).tolist())

    @property
    def num_callees(self) -> int:
        """Number of states that pushes go to: no output has to go deeper than that."""
        is_callee = np.zeros(self.num_states, dtype=bool)
        is_callee[self.edge_target[self.edge_target >= 0]] = True
        return int(np.count_nonzero(is_callee))

    @cached_property
    def needed_depth(self) -> NDArray[np.int32]:
        """(S,) how many levels must still be opened, one in another, to reach the end of each state's callee."""
        source, column = np.nonzero(self.table <= FIRST_SPECIAL)
        edges = FIRST_SPECIAL - self.table[source, column]
        is_push = self.edge_target[edges] >= 0
        ends = self.accepting.copy()
        ends[source[~is_push]] = True
        pushed = edges[is_push]
        callees, places = self.edge_target[pushed].astype(np.int64), self.edge_argument[pushed].astype(np.int64)
        return needed_depth(self.table, ends, Pushes(source[is_push], callees, places, self.returns, self.num_states))

    @cached_property
    def needed_behind(self) -> NDArray[np.int32]:
        """(E,) how many levels must still be opened behind what each push goes into; 0 for pops."""
        (pushes,) = np.nonzero(self.edge_target >= 0)
        needed = np.zeros(len(self.edge_target), dtype=np.int32)
        if len(pushes):
            starts, slices = np.unique(self.edge_argument[pushes], return_inverse=True)
            behind = np.where(self.returns >= 0, self.needed_depth[self.returns], np.int32(self.num_states))
            needed[pushes] = np.minimum.reduceat(behind, starts)[slices]
        return needed

    @cached_property
    def only_byte(self) -> NDArray[np.int16]:
        """(S,) the one byte with which a state can go on; -1 where there are several, or the output may end."""
        sizes = np.bincount(self.byte_classes, minlength=self.table.shape[1])
        is_open = self.table != DEAD
        members = np.zeros(self.table.shape[1], dtype=np.int16)
        members[self.byte_classes] = np.arange(256)
        is_forced = (is_open @ sizes == 1) & ~self.accepting
        return np.where(is_forced, members[is_open.argmax(axis=1)], -1).astype(np.int16)

    def forced_text(self, state: int, stack: Stack) -> tuple[bytes, bool]:
        """The bytes that must come next, and whether the output must end behind them."""
        text = bytearray()
        while len(text) < _MAX_FORCED:
            byte = int(self.only_byte[state])
            if byte < 0:
                break
            after, behind = self.run(state, stack, bytes([byte]))
            if after == DEAD:
                break
            state, stack = after, behind
            text.append(byte)
        return bytes(text), self.must_end(state)

    def run(self, state: int, stack: Stack, data: bytes, tracker: ItemTracker | None = None) -> tuple[int, Stack]:
        """The state and the stack after some bytes; state DEAD when they are not allowed.

        Args:
            state, stack: Those before.
            data: The bytes.
            tracker: Reads along, and sees to what `distinct` says; without, that is not seen to.
        """
        classes, table = self.byte_classes, self.table
        for byte in data:
            after = int(table[state, classes[byte]])
            opens = False
            if after <= FIRST_SPECIAL:
                edge = FIRST_SPECIAL - after
                target = int(self.edge_target[edge])
                if target >= 0:
                    stack = (*stack, int(self.edge_argument[edge]))
                    after = target
                    opens = target in self.distinct
                else:
                    after = int(self.returns[stack[-1] + int(self.edge_argument[edge])])
                    stack = stack[:-1]
            if after < 0 or (tracker is not None and not tracker.feed(byte, opens=opens)):
                return DEAD, ()
            state = after
        return state, stack

    def accepts(self, data: bytes) -> bool:
        """Whether the bytes are a complete output."""
        state, _ = self.run(0, (), data, ItemTracker() if self.distinct else None)
        return state >= 0 and bool(self.accepting[state])

    def must_end(self, state: int) -> bool:
        """Whether the output is complete at this state and nothing can follow."""
        return bool(self.accepting[state]) and bool((self.table[state] == DEAD).all())

    def restrict(self, allowed: Flags, budget: Budget) -> "ByteAutomaton":
        """The outputs that use only some byte values; for automata without a stack.

        Args:
            allowed: (256,) bool.
            budget: Paid for trimming.
        """
        assert self.is_regular
        used = (self.table >= 0)[:, self.byte_classes].any(axis=0)
        if not (used & ~allowed).any():
            return self
        # A class may hold both kinds of bytes: byte values that are not allowed get a class of their own.
        dead = self.table.shape[1]
        classes = np.where(allowed, self.byte_classes, dead)
        table = np.concatenate([self.table, np.full((self.num_states, 1), -1, dtype=np.int32)], axis=1)
        kept, renumbered = np.unique(classes, return_inverse=True)
        table, accepting = trim(np.ascontiguousarray(table[:, kept]), self.accepting, 0, budget)
        return ByteAutomaton(renumbered.astype(np.uint8), table, accepting)
