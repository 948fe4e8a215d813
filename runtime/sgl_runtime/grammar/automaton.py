"""ByteAutomaton: the one form in which a constraint is enforced, a deterministic automaton over bytes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.graph import Flags, Table, trim


@dataclass(frozen=True, eq=False)
class ByteAutomaton:
    """A trimmed automaton: every state is reachable and can reach acceptance; state 0 is the start.

    Attributes:
        byte_classes: (256,) uint8, the class of each byte.
        table: (S, K) int32, next state by class, -1 where the byte is not allowed.
        accepting: (S,) bool, whether the output may end here.
    """

    byte_classes: NDArray[np.uint8]
    table: Table
    accepting: Flags

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return len(self.table)

    @property
    def is_empty(self) -> bool:
        """Whether no output at all is accepted."""
        return not self.accepting.any()

    @property
    def size_bytes(self) -> int:
        """Memory that the tables take."""
        return self.table.nbytes + self.accepting.nbytes + self.byte_classes.nbytes

    def run(self, state: int, data: bytes) -> int:
        """The state after some bytes, -1 when they are not allowed."""
        for byte in data:
            state = int(self.table[state, self.byte_classes[byte]])
            if state < 0:
                return -1
        return state

    def accepts(self, data: bytes) -> bool:
        """Whether the bytes are a complete output."""
        state = self.run(0, data)
        return state >= 0 and bool(self.accepting[state])

    def must_end(self, state: int) -> bool:
        """Whether the output is complete at this state and nothing can follow."""
        return bool(self.accepting[state]) and not (self.table[state] >= 0).any()

    def restrict(self, allowed: Flags, budget: Budget) -> "ByteAutomaton":
        """The outputs that use only some byte values.

        Args:
            allowed: (256,) bool.
            budget: Paid for trimming.
        """
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
