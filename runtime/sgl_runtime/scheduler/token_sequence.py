"""TokenSequence: the ids of one request, prompt and output, in one growing array."""

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class TokenSequence:
    """Prompt and output ids.

    Args:
        prompt: Prompt ids.
        max_new: Most ids that will be appended.
    """

    def __init__(self, prompt: Sequence[int], *, max_new: int) -> None:
        self._max_len = len(prompt) + max_new
        self._buffer = np.empty(min(self._max_len, len(prompt) + 64), dtype=np.int64)
        # A third of the time that numpy takes to read a list of numbers.
        struct.pack_into(f"={len(prompt)}q", self._buffer.data, 0, *prompt)
        self._len = len(prompt)
        self.last = int(prompt[-1])
        """The newest id."""

    def __len__(self) -> int:
        return self._len

    def append(self, token_id: int) -> None:
        """Add a generated id."""
        assert self._len < self._max_len, f"more than {self._max_len} tokens"
        if self._len == len(self._buffer):
            grown = np.empty(min(self._max_len, 2 * self._len), dtype=np.int64)
            grown[: self._len] = self._buffer
            self._buffer = grown
        self._buffer[self._len] = self.last = token_id
        self._len += 1

    def view(self, start: int, end: int) -> NDArray[np.int64]:
        """Ids start .. end - 1, not copied."""
        assert end <= self._len
        return self._buffer[start:end]
