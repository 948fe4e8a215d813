"""ReqToTokenPool: a row of slots for each running request, on the host."""

import numpy as np

from sgl_runtime.batch import IntArray
from sgl_runtime.cache.slot_allocator import whole_pages


class ReqToTokenPool:
    """Slots by row and position; the truth of which the device holds a mirror.

    Args:
        num_rows: Requests that may run together.
        context_length: Positions a row.
        page_size: Slots of a page; rows are as long as the whole pages of a context.

    Attributes:
        slots: (num_rows, positions) int32.
        num_held: (num_rows,) positions of each row that have a slot; whole pages.
        num_private: (num_rows,) slots that each row holds outside the prefix cache.
    """

    def __init__(self, *, num_rows: int, context_length: int, page_size: int = 1) -> None:
        self.num_rows = num_rows
        self.slots = np.zeros((num_rows, whole_pages(context_length, page_size)), dtype=np.int32)
        self.num_held = np.zeros(num_rows, dtype=np.int32)
        self.num_private = np.zeros(num_rows, dtype=np.int32)
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
        """Return a row, whose slots have been given back."""
        assert row not in self._free_rows, f"row {row} returned twice"
        self.num_held[row] = self.num_private[row] = 0
        self._free_rows.append(row)

    def write(self, row: int, start: int, slots: IntArray) -> None:
        """Set the slots of positions from `start` on."""
        self.slots[row, start : start + len(slots)] = slots

    def read(self, row: int, start: int, end: int) -> IntArray:
        """A copy of the slots of positions start .. end - 1."""
        return self.slots[row, start:end].copy()
