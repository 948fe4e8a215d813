"""NoCache: the prefix cache that keeps nothing."""

import numpy as np

from sgl_runtime.batch import IntArray
from sgl_runtime.cache.prefix_cache import PrefixMatch, TokenArray

_NOTHING = np.empty(0, dtype=np.int32)


class NoCache:
    """See `PrefixCache`; every match is empty and nothing is taken over."""

    num_cached = 0
    num_evictable = 0

    def match(self, ids: TokenArray) -> PrefixMatch:
        """See `PrefixCache`."""
        return PrefixMatch(_NOTHING, None)

    def insert(self, ids: TokenArray, slots: IntArray) -> int:
        """See `PrefixCache`; the caller keeps all slots."""
        return len(ids)

    def lock(self, node: None) -> None:
        """See `PrefixCache`."""

    def unlock(self, node: None) -> None:
        """See `PrefixCache`."""

    def evict(self, count: int) -> IntArray:
        """See `PrefixCache`."""
        return _NOTHING

    def clear(self) -> IntArray:
        """See `PrefixCache`."""
        return _NOTHING

    def all_slots(self) -> IntArray:
        """See `PrefixCache`."""
        return _NOTHING
