"""SlotAllocator: which slots of the pool are free, in whole pages."""

import numpy as np

from sgl_runtime.batch import IntArray


def whole_pages(count: int, page_size: int) -> int:
    """The fewest slots in whole pages that hold `count` tokens."""
    return -(-count // page_size) * page_size


class SlotAllocator:
    """A stack of free pages; lower slots are handed out first, in rising order.

    A page is `page_size` slots that follow each other, the first at a multiple of the page size.

    Args:
        num_slots: Slots in the pool, a multiple of the page size.
        page_size: Slots of a page.
    """

    def __init__(self, *, num_slots: int, page_size: int = 1) -> None:
        assert num_slots % page_size == 0, f"{num_slots} slots are not whole pages of {page_size}"
        self.num_slots = num_slots
        self.page_size = page_size
        self._offsets = np.arange(page_size, dtype=np.int32)
        # Page starts, the next one last.
        self._free = np.arange(num_slots - page_size, -1, -page_size, dtype=np.int32)
        self._num_free = len(self._free)

    @property
    def num_free(self) -> int:
        """Slots that can be allocated."""
        return self._num_free * self.page_size

    def allocate(self, count: int) -> IntArray:
        """(count,) slots of whole pages; the caller has made sure that there are enough."""
        num_pages, rest = divmod(count, self.page_size)
        assert rest == 0, f"{count} slots are not whole pages of {self.page_size}"
        assert num_pages <= self._num_free, f"{count} slots asked, {self.num_free} free"
        self._num_free -= num_pages
        pages = self._free[self._num_free : self._num_free + num_pages][::-1]
        if self.page_size == 1:
            return pages.copy()
        return (pages[:, np.newaxis] + self._offsets).ravel()

    def free(self, slots: IntArray) -> None:
        """Give whole pages back, each as its slots in rising order."""
        pages = slots[:: self.page_size]
        end = self._num_free + len(pages)
        assert len(pages) * self.page_size == len(slots), f"{len(slots)} slots are not whole pages of {self.page_size}"
        assert end <= len(self._free), f"{len(slots)} slots freed over a pool of {self.num_slots}"
        self._free[self._num_free : end] = pages[::-1]
        self._num_free = end

    def free_slots(self) -> IntArray:
        """A copy of all free slot ids, for checks."""
        return (self._free[: self._num_free, np.newaxis] + self._offsets).ravel()
