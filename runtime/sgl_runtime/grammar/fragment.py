"""ByteFragment: a part of a grammar that has been compiled, an automaton over bytes whose ends carry labels."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

NO_LABEL = -1


@dataclass(frozen=True, eq=False)
class ByteFragment:
    """A trimmed deterministic automaton: every state is reachable and can reach a label; state 0 is the start.

    Attributes:
        table: (S, 256) int32, next state by byte, -1 where the byte is not allowed.
        labels: (S,) int32, what has been read when the text ends at this state: a number from 0 on, or NO_LABEL
            where it may not end.
        known_classes: (256,) classes of bytes with the same edges, where they are known; None to find them.
    """

    table: NDArray[np.int32]
    labels: NDArray[np.int32]
    known_classes: NDArray[np.int64] | None = None

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return len(self.table)

    @cached_property
    def byte_classes(self) -> NDArray[np.int64]:
        """(256,) the class of each byte; bytes of a class have the same edges."""
        if self.known_classes is not None:
            return self.known_classes
        # Equal columns have equal hashes; should others have too, each byte becomes a class of its own.
        weights = np.random.default_rng(0).integers(1, 2**62, size=(self.num_states, 1), dtype=np.int64)
        hashes = (self.table * weights).sum(axis=0)
        _, first, classes = np.unique(hashes, return_index=True, return_inverse=True)
        if not np.array_equal(self.table[:, first[classes]], self.table):
            return np.arange(256)
        return classes

    @property
    def is_empty(self) -> bool:
        """Whether no text at all has a label."""
        return not (self.labels >= 0).any()

    @property
    def size_bytes(self) -> int:
        """Memory that the arrays take."""
        return self.table.nbytes + self.labels.nbytes

    def label_of(self, data: bytes) -> int:
        """The label of a complete text, NO_LABEL when it has none."""
        state = 0
        for byte in data:
            state = int(self.table[state, byte])
            if state < 0:
                return NO_LABEL
        return int(self.labels[state])
