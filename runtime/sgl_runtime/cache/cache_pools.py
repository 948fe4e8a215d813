"""CachePools: allocator, request rows and prefix cache, which together account for every slot."""

from dataclasses import dataclass

from sgl_runtime.batch import IntArray
from sgl_runtime.cache.cache_events import CacheEvents
from sgl_runtime.cache.prefix_cache import PrefixCache
from sgl_runtime.cache.req_to_token_pool import ReqToTokenPool
from sgl_runtime.cache.slot_allocator import SlotAllocator, whole_pages

EVICTION_SHARE = 64
EVICTION_LIMIT = 256
"""What is evicted at once, so that not every pass has to: this part of the pool, and at most so many tokens."""


@dataclass(frozen=True)
class CachePools:
    """The host's truth of where keys and values lie.

    Attributes:
        allocator: Free slots.
        rows: Slots of running requests.
        cache: Slots of prefixes.
        events: Log of what happens in the cache; None where none is kept.
    """

    allocator: SlotAllocator
    rows: ReqToTokenPool
    cache: PrefixCache
    events: CacheEvents | None = None

    @property
    def page_size(self) -> int:
        """Slots of a page."""
        return self.allocator.page_size

    @property
    def num_available(self) -> int:
        """Slots that are free or can be had by eviction."""
        return self.allocator.num_free + self.cache.num_evictable

    def allocate(self, count: int) -> IntArray | None:
        """(count,) slots of whole pages, evicting as needed; None when there are too few even so."""
        missing = count - self.allocator.num_free
        if missing > 0:
            if missing > self.cache.num_evictable:
                return None
            at_once = whole_pages(min(self.allocator.num_slots // EVICTION_SHARE, EVICTION_LIMIT), self.page_size)
            self.allocator.free(self.cache.evict(max(missing, at_once)))
        return self.allocator.allocate(count)

    def check(self) -> None:
        """Account for every slot.

        Raises:
            AssertionError: something is lost or held twice.
        """
        total, held = self.allocator.num_slots, int(self.rows.num_private.sum())
        leaked = total - self.allocator.num_free - self.cache.num_cached - held
        assert leaked == 0, (
            f"{leaked} of {total} slots unaccounted for: free={self.allocator.num_free} "
            f"cached={self.cache.num_cached} held={held}"
        )
