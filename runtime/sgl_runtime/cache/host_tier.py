"""HostTier: prefixes that left the device and wait in host memory."""

from typing import Literal

import numpy as np

from sgl_runtime.batch import SlotCopies
from sgl_runtime.cache.cache_events import CacheEvents
from sgl_runtime.cache.eviction_queue import EVICTION_RANKS, EvictionPolicy, EvictionQueue
from sgl_runtime.cache.radix_node import RadixNode
from sgl_runtime.cache.radix_tree import RadixTree, as_array, as_bytes
from sgl_runtime.cache.slot_allocator import SlotAllocator

HOST_BIT = 2

WritePolicy = Literal["write_through", "write_back"]


class HostTier:
    """Slots of the host's pool, and the copies that the next pass has to make.

    The copies of a pass happen in the order of the device's work: first all to the host, then all from it, then the
    pass itself writes.  So a slot may be given to somebody else as soon as its copy has been asked for.

    Args:
        tree: The tree of the cache.
        num_slots: Slots of the host's pool.
        page_size: Slots of a page.
        policy: What is dropped first when the host's pool is full.
        write_policy: `write_back` copies a node when it leaves the device, `write_through` soon after it was computed.
        events: Log of what happens, if one is wanted.
    """

    def __init__(
        self,
        tree: RadixTree,
        *,
        num_slots: int,
        page_size: int = 1,
        policy: EvictionPolicy = "lru",
        write_policy: WritePolicy = "write_back",
        events: CacheEvents | None = None,
    ) -> None:
        self._tree = tree
        self._allocator = SlotAllocator(num_slots=num_slots, page_size=page_size)
        self._writes_through = write_policy == "write_through"
        self._events = events
        self._queue = EvictionQueue(EVICTION_RANKS[policy], bit=HOST_BIT, is_evictable=lambda node: node.is_host_leaf)
        self._stores: list[tuple[bytes, bytes]] = []
        self._loads: list[tuple[bytes, bytes]] = []
        # Nodes of which a copy is due: those the coming pass may still compute, and those that are computed by then.
        self._fresh: list[RadixNode] = []
        self._computed: list[RadixNode] = []

    @property
    def num_used(self) -> int:
        """Slots of the host's pool that hold something."""
        return self._allocator.num_slots - self._allocator.num_free

    def inserted(self, node: RadixNode) -> None:
        """A node is new on the device; the coming pass may be the one that computes it."""
        if self._writes_through:
            self._fresh.append(node)

    def split(self, upper: RadixNode) -> None:
        """A node was cut, and this is the new part."""
        if upper.host_slots is None:
            self.inserted(upper)

    def keep(self, node: RadixNode) -> bool:
        """Take over a node that leaves the device; False when there is no room."""
        if not self._store(node):
            return False
        node.slots = None
        self._queue.add(node)
        if self._events is not None:
            self._events.to_host(node)
        return True

    def load(self, node: RadixNode) -> None:
        """Copy a node to the slots on the device that it has got; it keeps those on the host."""
        assert node.slots is not None, "the node has got its slots on the device"
        assert node.host_slots is not None, "the node is on the host"
        self._loads.append((node.slots, node.host_slots))

    def consider(self, node: RadixNode) -> None:
        """A node may be a leaf that is on the host only."""
        self._queue.add(node)

    def forget(self, node: RadixNode) -> None:
        """A node leaves the tree."""
        if node.host_slots is not None:
            self._allocator.free(as_array(node.host_slots))
            node.host_slots = None

    def take_copies(self) -> tuple[SlotCopies | None, SlotCopies | None]:
        """See `PrefixCache`."""
        for node in self._computed:
            if node.parent is not None and node.slots is not None:
                self._store(node)
        self._computed, self._fresh = self._fresh, []
        stores, loads = _copies(self._stores, unique=1), _copies(self._loads, unique=0)
        self._stores, self._loads = [], []
        return stores, loads

    def clear(self) -> None:
        """Forget everything; the tree is cleared by its owner."""
        for node in self._tree.nodes():
            self.forget(node)
        self._queue.clear()
        for pending in (self._stores, self._loads, self._fresh, self._computed):
            pending.clear()

    def check(self) -> None:
        """Account for every slot of the host's pool.

        Raises:
            AssertionError: something is lost or held twice.
        """
        held = [as_array(node.host_slots) for node in self._tree.nodes() if node.host_slots is not None]
        everything = np.sort(np.concatenate([*held, self._allocator.free_slots()]))
        assert np.array_equal(everything, np.arange(self._allocator.num_slots)), "a slot of the host is lost or shared"

    def _store(self, node: RadixNode) -> bool:
        """Ask for a copy on the host, unless there is one; False when there is no room."""
        if node.host_slots is not None:
            return True
        assert node.slots is not None, "a node is on the device or on the host"
        if not self._make_room(node.num_tokens):
            return False
        node.host_slots = as_bytes(self._allocator.allocate(node.num_tokens))
        self._stores.append((node.slots, node.host_slots))
        return True

    def _make_room(self, count: int) -> bool:
        if count > self._allocator.num_slots:
            return False
        while self._allocator.num_free < count:
            leaf = self._queue.pop()
            if leaf is None:
                return False
            self.forget(leaf)
            parent = self._tree.remove(leaf)
            self._queue.add(parent)
            if self._events is not None:
                self._events.removed(leaf)
        return True


def _copies(pairs: list[tuple[bytes, bytes]], *, unique: int) -> SlotCopies | None:
    """Pairs of slots on the device and on the host as one copy, in which no slot is written twice.

    Args:
        pairs: In the order in which they were asked for; a later one overwrites an earlier one.
        unique: Which side is written: 0 the device, 1 the host.
    """
    if not pairs:
        return None
    sides = [as_array(b"".join(pair[side] for pair in pairs)) for side in (0, 1)]
    # Of equal values `unique` takes the first, which is the last of those asked for.
    _, index = np.unique(sides[unique][::-1], return_index=True)
    chosen = len(sides[unique]) - 1 - index
    return SlotCopies(device_slots=sides[0][chosen], host_slots=sides[1][chosen])
