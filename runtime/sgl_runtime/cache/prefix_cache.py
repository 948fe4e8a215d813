"""PrefixCache: what the scheduler asks of a cache of prefixes."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import IntArray

TokenArray = NDArray[np.int64]


@dataclass(frozen=True)
class PrefixMatch:
    """The longest cached prefix of some ids.

    Attributes:
        slots: Slots of its tokens.
        node: Where it ends; to be locked while the slots are in use.
    """

    slots: IntArray
    node: Any

    @property
    def length(self) -> int:
        """Tokens that matched."""
        return len(self.slots)


class PrefixCache(Protocol):
    """Prefixes of token ids whose keys and values are kept."""

    def match(self, ids: TokenArray) -> PrefixMatch:
        """The longest cached prefix of these ids."""

    def insert(self, ids: TokenArray, slots: IntArray) -> int:
        """Keep a prefix.

        Args:
            ids: Tokens.
            slots: Their slots; those past the returned length belong to the cache from now on.

        Returns:
            How many tokens were there already; the caller still owns their slots, where they differ from the cache's.
        """

    def lock(self, node: Any) -> None:
        """Keep a node and all above it from eviction."""

    def unlock(self, node: Any) -> None:
        """Undo one `lock`."""

    def evict(self, count: int) -> IntArray:
        """Drop at least `count` unlocked tokens, or all there are; the freed slots."""

    def clear(self) -> IntArray:
        """Drop everything; nothing may be locked.  The freed slots."""

    @property
    def num_cached(self) -> int:
        """Tokens kept."""

    @property
    def num_evictable(self) -> int:
        """Tokens kept that no lock holds."""

    def all_slots(self) -> IntArray:
        """Every slot that the cache owns, for checks."""
