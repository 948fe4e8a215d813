"""ByteFragment: a part of a grammar that has been compiled, an automaton over bytes whose ends carry labels."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

NO_LABEL = -1
_NUM_BYTES = 256


@dataclass(frozen=True, eq=False)
class ByteFragment:
    """A trimmed deterministic automaton: every state is reachable and can reach a label; state 0 is the start.

    Attributes:
        class_table: (S, K) int32, next state by class, -1 where the byte is not allowed.
        labels: (S,) int32, what has been read when the text ends at this state: a number from 0 on, or NO_LABEL
            where it may not end.
        byte_classes: (256,) int64, the class of each byte.
    """

    class_table: NDArray[np.int32]
    labels: NDArray[np.int32]
    byte_classes: NDArray[np.int64]

    @classmethod
    def of(cls, table: NDArray[np.int32], labels: NDArray[np.int32]) -> "ByteFragment":
        """The fragment of a table by bytes.

        Args:
            table: (S, 256) int32, next state by byte.
            labels: See the class.
        """
        # Equal columns have equal hashes; should others have too, each byte becomes a class of its own.
        weights = np.random.default_rng(0).integers(1, 2**62, size=(len(table), 1), dtype=np.int64)
        _, first, classes = np.unique((table * weights).sum(axis=0), return_index=True, return_inverse=True)
        class_table = np.ascontiguousarray(table[:, first])
        if not np.array_equal(class_table[:, classes], table):
            return cls(table, labels, np.arange(_NUM_BYTES))
        return cls(class_table, labels, classes)

    @property
    def table(self) -> NDArray[np.int32]:
        """(S, 256) int32, next state by byte; made anew at each call."""
        return self.class_table[:, self.byte_classes]

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return len(self.class_table)

    @cached_property
    def label_set(self) -> frozenset[int]:
        """The labels that occur."""
        return frozenset(self.labels.tolist()) - {NO_LABEL}

    @cached_property
    def bytes_at_start(self) -> bytes:
        """The bytes that lead from the start back to it."""
        return bytes(np.flatnonzero(self.class_table[0, self.byte_classes] == 0).tolist())

    @property
    def is_empty(self) -> bool:
        """Whether no text at all has a label."""
        return not self.label_set

    @property
    def size_bytes(self) -> int:
        """Memory that the arrays take."""
        return self.class_table.nbytes + self.labels.nbytes + self.byte_classes.nbytes

    def after(self, state: int, byte: int) -> int:
        """The state behind a byte, -1 where it is not allowed."""
        return int(self.class_table[state, self.byte_classes[byte]])

    def label_of(self, data: bytes) -> int:
        """The label of a complete text, NO_LABEL when it has none."""
        state = 0
        for byte in data:
            state = self.after(state, byte)
            if state < 0:
                return NO_LABEL
        return int(self.labels[state])
