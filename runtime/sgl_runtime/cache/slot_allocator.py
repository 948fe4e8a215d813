"""SlotAllocator: which slots of the pool are free."""

import numpy as np

from sgl_runtime.batch import IntArray


class SlotAllocator:
    """A stack of free slot ids; lower ids are handed out first, in rising order.

    Args:
        num_slots: Slots in the pool.
    """

    def __init__(self, *, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = np.arange(num_slots - 1, -1, -1, dtype=np.int32)
        self._num_free = num_slots

    @property
    def num_free(self) -> int:
        """Slots that can be allocated."""
        return self._num_free

    def allocate(self, count: int) -> IntArray:
        """(count,) slots; the caller has made sure that there are enough."""
        assert count <= self._num_free, f"{count} slots asked, {self._num_free} free"
        self._num_free -= count
        return self._free[self._num_free : self._num_free + count][::-1].copy()

    def free(self, slots: IntArray) -> None:
        """Give slots back."""
        end = self._num_free + len(slots)
        assert end <= self.num_slots, f"{len(slots)} slots freed over a pool of {self.num_slots}"
        self._free[self._num_free : end] = slots[::-1]
        self._num_free = end

    def free_slots(self) -> IntArray:
        """A copy of all free slot ids, for checks."""
        return self._free[: self._num_free].copy()
