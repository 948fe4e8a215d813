"""CachePools: allocator, request rows and prefix cache, which together account for every slot."""

from dataclasses import dataclass

from sgl_runtime.batch import IntArray
from sgl_runtime.cache.prefix_cache import PrefixCache
from sgl_runtime.cache.req_to_token_pool import ReqToTokenPool
from sgl_runtime.cache.slot_allocator import SlotAllocator


@dataclass(frozen=True)
class CachePools:
    """The host's truth of where keys and values lie."""

    allocator: SlotAllocator
    rows: ReqToTokenPool
    cache: PrefixCache

    @property
    def num_available(self) -> int:
        """Slots that are free or can be had by eviction."""
        return self.allocator.num_free + self.cache.num_evictable

    def allocate(self, count: int) -> IntArray | None:
        """(count,) slots, evicting as needed; None when there are too few even so."""
        if count > self.num_available:
            return None
        if count > self.allocator.num_free:
            self.allocator.free(self.cache.evict(count - self.allocator.num_free))
        return self.allocator.allocate(count)

    def check(self, num_private: int) -> None:
        """Account for every slot.

        Args:
            num_private: Slots that running requests hold outside the cache.
        """
        total = self.allocator.num_slots
        leaked = total - self.allocator.num_free - self.cache.num_cached - num_private
        assert leaked == 0, (
            f"{leaked} of {total} slots unaccounted for: free={self.allocator.num_free} "
            f"cached={self.cache.num_cached} held={num_private}"
        )
