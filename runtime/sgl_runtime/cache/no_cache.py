"""NoCache: the prefix cache that keeps nothing."""

import numpy as np

from sgl_runtime.batch import IntArray, SlotCopies
from sgl_runtime.cache.prefix_cache import PrefixMatch, PrefixPlace, TokenArray

_NOTHING = np.empty(0, dtype=np.int32)


class NoCache:
    """See `PrefixCache`; every match is empty and nothing is taken over."""

    top = None
    num_cached = 0
    num_evictable = 0
    num_on_host = 0

    def match(self, ids: TokenArray, *, extra_key: str | None = None) -> PrefixMatch:
        """See `PrefixCache`."""
        return PrefixMatch(_NOTHING, None)

    def find(self, ids: TokenArray, *, extra_key: str | None = None, since: PrefixPlace | None = None) -> PrefixPlace:
        """See `PrefixCache`."""
        return PrefixPlace(None, 0, 0)

    def is_current(self, place: PrefixPlace, *, extra_key: str | None = None) -> bool:
        """See `PrefixCache`."""
        return True

    def insert(
        self, ids: TokenArray, slots: IntArray, *, after: None, extra_key: str | None = None, priority: int = 0
    ) -> PrefixMatch:
        """See `PrefixCache`; the caller keeps all slots."""
        return PrefixMatch(_NOTHING, None)

    def load(self, node: None, slots: IntArray) -> None:
        """See `PrefixCache`."""

    def lock(self, node: None) -> None:
        """See `PrefixCache`."""

    def unlock(self, node: None) -> None:
        """See `PrefixCache`."""

    def evict(self, count: int) -> IntArray:
        """See `PrefixCache`."""
        return _NOTHING

    def take_copies(self) -> tuple[SlotCopies | None, SlotCopies | None]:
        """See `PrefixCache`."""
        return None, None

    def clear(self) -> IntArray:
        """See `PrefixCache`."""
        return _NOTHING

    def all_slots(self) -> IntArray:
        """See `PrefixCache`."""
        return _NOTHING

    def check(self) -> None:
        """See `PrefixCache`."""
