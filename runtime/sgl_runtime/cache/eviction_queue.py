"""EvictionQueue: nodes that can be evicted, in the order of a policy."""

import heapq
import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from sgl_runtime.cache.radix_node import RadixNode

EvictionPolicy = Literal["lru", "lfu", "fifo", "priority"]
EvictionRank = Callable[[RadixNode], tuple[int, int]]

EVICTION_RANKS: Mapping[EvictionPolicy, EvictionRank] = MappingProxyType(
    {
        "lru": lambda node: (node.last_used, 0),
        "lfu": lambda node: (node.num_uses, node.last_used),
        "fifo": lambda node: (node.created, 0),
        "priority": lambda node: (node.priority, node.last_used),
    }
)
"""What goes first has the smallest rank.  A rank never falls, which `EvictionQueue` relies on."""


class EvictionQueue:
    """A heap whose entries may be out of date: each is checked when it comes to the top.

    A node has at most one entry.  One that was used since has a larger rank, and goes back in; one that may no
    longer be evicted is dropped, and comes again when it may.  So the cost of a call depends on how many nodes were
    used since the last, and not on the size of the tree.

    Args:
        rank: Of the policy.
        bit: Which bit of `RadixNode.queues` says that a node is in this queue.
        is_evictable: Whether a node may be evicted now.
    """

    def __init__(self, rank: EvictionRank, *, bit: int, is_evictable: Callable[[RadixNode], bool]) -> None:
        self._rank = rank
        self._bit = bit
        self._is_evictable = is_evictable
        self._serials = itertools.count()
        self._heap: list[tuple[tuple[int, int], int, RadixNode]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, node: RadixNode) -> None:
        """Consider a node from now on, if it can be evicted."""
        if not node.queues & self._bit and self._is_evictable(node):
            node.queues |= self._bit
            heapq.heappush(self._heap, (self._rank(node), next(self._serials), node))

    def pop(self) -> RadixNode | None:
        """Take the node that goes first; None when none can be evicted."""
        while self._heap:
            rank, _, node = self._heap[0]
            if not self._is_evictable(node):
                heapq.heappop(self._heap)
                node.queues &= ~self._bit
            elif (now := self._rank(node)) != rank:
                heapq.heapreplace(self._heap, (now, next(self._serials), node))
            else:
                heapq.heappop(self._heap)
                node.queues &= ~self._bit
                return node
        return None

    def clear(self) -> None:
        """Forget all nodes."""
        self._heap.clear()
