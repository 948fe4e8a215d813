"""ReqToTokenPool: a row of slots for each running request, on the host."""

import numpy as np

from sgl_runtime.batch import IntArray


class ReqToTokenPool:
    """Slots by row and position; the truth of which the device holds a mirror.

    Args:
        num_rows: Requests that may run together.
        context_length: Positions a row.
    """

    def __init__(self, *, num_rows: int, context_length: int) -> None:
        self.num_rows = num_rows
        self.slots = np.zeros((num_rows, context_length), dtype=np.int32)
        self._free_rows = list(range(num_rows - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Rows that can be taken."""
        return len(self._free_rows)

    def take(self) -> int:
        """A free row."""
        assert self._free_rows, "no free row"
        return self._free_rows.pop()

    def give_back(self, row: int) -> None:
        """Return a row."""
        assert row not in self._free_rows, f"row {row} returned twice"
        self._free_rows.append(row)

    def write(self, row: int, start: int, slots: IntArray) -> None:
        """Set the slots of positions from `start` on."""
        self.slots[row, start : start + len(slots)] = slots

    def read(self, row: int, start: int, end: int) -> IntArray:
        """A copy of the slots of positions start .. end - 1."""
        return self.slots[row, start:end].copy()
