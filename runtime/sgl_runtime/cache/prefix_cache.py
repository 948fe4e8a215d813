"""PrefixCache: what the scheduler asks of a cache of prefixes."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import IntArray, SlotCopies

TokenArray = NDArray[np.int64]


@dataclass(frozen=True)
class PrefixMatch:
    """A prefix of some ids that is cached.

    Attributes:
        slots: Slots of its tokens that are on the device; these come first.
        node: Where it ends; to be locked while the slots are in use.
        num_on_host: Tokens behind these that are on the host; `PrefixCache.load` brings them back.
    """

    slots: IntArray
    node: Any
    num_on_host: int = 0

    @property
    def length(self) -> int:
        """Tokens that matched."""
        return len(self.slots) + self.num_on_host


@dataclass(frozen=True)
class PrefixPlace:
    """How far some ids lead into the cache, as a note for the next time.

    Attributes:
        node: Where the last edge ends that they run through in full.
        num_tokens: Tokens up to there.
        length: Tokens that are cached, with those of an edge in which the ids end.
        next_page: The ids' next page behind `num_tokens`, as an edge has it.
        edge: The tokens of the edge below `node` that begins with it; None without one.
    """

    node: Any
    num_tokens: int
    length: int
    next_page: bytes = b""
    edge: bytes | None = None


class PrefixCache(Protocol):
    """Prefixes of token ids whose keys and values are kept, in whole pages.

    A node stands for a prefix.  `top` is the node of the empty one, whatever the extra key.

    Attributes:
        top: The node of the empty prefix.
    """

    top: Any

    def match(self, ids: TokenArray, *, extra_key: str | None = None) -> PrefixMatch:
        """The longest cached prefix of these ids.

        Args:
            ids: Tokens.
            extra_key: Requests of different extra keys share nothing.
        """

    def find(self, ids: TokenArray, *, extra_key: str | None = None, since: PrefixPlace | None = None) -> PrefixPlace:
        """What `match` would find; counts as no use of it and changes nothing.

        Args:
            ids: Tokens.
            extra_key: See `match`.
            since: What was found for the same ids before: from there it takes no longer than what has changed.
        """

    def is_current(self, place: PrefixPlace, *, extra_key: str | None = None) -> bool:
        """Whether `find` would give the same place again; False where it only might."""

    def insert(
        self,
        ids: TokenArray,
        slots: IntArray,
        *,
        after: Any,
        extra_key: str | None = None,
        priority: int = 0,
    ) -> PrefixMatch:
        """Keep a prefix.

        Args:
            ids: The tokens that follow those of `after`; whole pages.
            slots: Their slots.
            after: `top`, or a node that is locked, of the same extra key.
            extra_key: See `match`.
            priority: Of the request, for eviction by priority.

        Returns:
            The slots that the cache has for `ids` from now on, and the node.  Where they differ from `slots`, the
            tokens were there already, and the caller still owns its slots; the others belong to the cache.  Without a
            cache there are none.
        """

    def load(self, node: Any, slots: IntArray) -> None:
        """Bring the tokens up to a locked node back from the host.

        Args:
            node: Of a match.
            slots: (num_on_host,) slots for them, which belong to the cache from now on.
        """

    def lock(self, node: Any) -> None:
        """Keep a node and all above it from eviction."""

    def unlock(self, node: Any) -> None:
        """Undo one `lock`."""

    def evict(self, count: int) -> IntArray:
        """Drop at least `count` unlocked tokens from the device, or all there are; the freed slots."""

    def take_copies(self) -> tuple[SlotCopies | None, SlotCopies | None]:
        """Copies to the host and from the host that the coming pass must make, in this order, before it writes."""

    def clear(self) -> IntArray:
        """Drop everything; nothing may be locked.  The freed slots."""

    @property
    def num_cached(self) -> int:
        """Tokens kept on the device."""

    @property
    def num_evictable(self) -> int:
        """Tokens kept on the device that no lock holds."""

    @property
    def num_on_host(self) -> int:
        """Tokens kept on the host."""

    def all_slots(self) -> IntArray:
        """Every slot that the cache owns, for checks."""

    def check(self) -> None:
        """Recount everything that is kept as a running count.

        Raises:
            AssertionError: something does not add up.
        """
