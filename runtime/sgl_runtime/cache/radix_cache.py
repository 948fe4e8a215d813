"""RadixCache: a tree from token prefixes to slots, with locks and LRU eviction."""

import heapq
from collections.abc import Iterator

import numpy as np

from sgl_runtime.batch import IntArray
from sgl_runtime.cache.prefix_cache import PrefixMatch, TokenArray


class RadixNode:
    """An edge of the tree with its tokens.

    Attributes:
        ids: Tokens on the way from the parent, (n,) int32.
        slots: Their slots, (n,) int32.
        parent: None for the root only.
        children: By first token.
        num_locks: How many matches at or below this node are in use.
        last_used: Tick of the last match or insert that passed here.
    """

    __slots__ = ("children", "ids", "last_used", "num_locks", "parent", "slots")

    def __init__(self, ids: IntArray, slots: IntArray, parent: "RadixNode | None") -> None:
        self.ids = ids
        self.slots = slots
        self.parent = parent
        self.children: dict[int, RadixNode] = {}
        self.num_locks = 0
        self.last_used = 0


def common_length(a: IntArray, b: IntArray) -> int:
    """Length of the common prefix of two arrays."""
    size = min(len(a), len(b))
    differs = a[:size] != b[:size]
    first = int(differs.argmax()) if size else 0
    return first if size and differs[first] else size


class RadixCache:
    """See `PrefixCache`.

    Source: arXiv:2312.07104 section 3.
    """

    def __init__(self) -> None:
        self._tick = 0
        self._num_cached = 0
        self._num_locked = 0
        self._root = self._new_root()

    @property
    def num_cached(self) -> int:
        """See `PrefixCache`."""
        return self._num_cached

    @property
    def num_evictable(self) -> int:
        """See `PrefixCache`."""
        return self._num_cached - self._num_locked

    def match(self, ids: TokenArray) -> PrefixMatch:
        """See `PrefixCache`; an edge is split where the match ends inside it."""
        node, slots, _ = self._walk(ids.astype(np.int32))
        return PrefixMatch(np.concatenate(slots) if slots else np.empty(0, dtype=np.int32), node)

    def insert(self, ids: TokenArray, slots: IntArray) -> int:
        """See `PrefixCache`."""
        key = ids.astype(np.int32)
        node, _, length = self._walk(key)
        if length < len(key):
            child = RadixNode(key[length:].copy(), slots[length:].copy(), node)
            child.last_used = self._tick
            node.children[int(key[length])] = child
            self._num_cached += len(child.ids)
        return length

    def lock(self, node: RadixNode) -> None:
        """See `PrefixCache`."""
        step: RadixNode | None = node
        while step is not None:
            if step.num_locks == 0:
                self._num_locked += len(step.ids)
            step.num_locks += 1
            step = step.parent

    def unlock(self, node: RadixNode) -> None:
        """See `PrefixCache`."""
        step: RadixNode | None = node
        while step is not None:
            assert step.num_locks > 0, "a node was unlocked more often than locked"
            step.num_locks -= 1
            if step.num_locks == 0:
                self._num_locked -= len(step.ids)
            step = step.parent

    def evict(self, count: int) -> IntArray:
        """See `PrefixCache`; least recently used leaves go first."""
        leaves = [(node.last_used, id(node), node) for node in self._nodes() if self._is_evictable(node)]
        heapq.heapify(leaves)
        freed: list[IntArray] = []
        num_freed = 0
        while leaves and num_freed < count:
            _, _, node = heapq.heappop(leaves)
            freed.append(node.slots)
            num_freed += len(node.slots)
            parent = self._remove(node)
            if self._is_evictable(parent):
                heapq.heappush(leaves, (parent.last_used, id(parent), parent))
        return np.concatenate(freed) if freed else np.empty(0, dtype=np.int32)

    def clear(self) -> IntArray:
        """See `PrefixCache`."""
        assert self._num_locked == 0, f"{self._num_locked} cached tokens are in use"
        slots = self.all_slots()
        self._root = self._new_root()
        self._num_cached = 0
        return slots

    def all_slots(self) -> IntArray:
        """See `PrefixCache`."""
        return np.concatenate([node.slots for node in self._nodes()] or [np.empty(0, dtype=np.int32)])

    def check(self) -> None:
        """Recount everything that is kept as a running count."""
        nodes = list(self._nodes())
        cached = sum(len(node.ids) for node in nodes)
        locked = sum(len(node.ids) for node in nodes if node.num_locks)
        assert cached == self._num_cached, f"{cached} tokens in the tree, {self._num_cached} counted"
        assert locked == self._num_locked, f"{locked} tokens locked, {self._num_locked} counted"
        for node in nodes:
            assert len(node.ids) == len(node.slots) > 0, "an edge holds one slot for each of its tokens"
            assert node.parent is not None
            assert node.parent.num_locks >= node.num_locks, "a lock holds everything above it"
            assert node.parent.children[int(node.ids[0])] is node, "a child lies under its first token"

    def _walk(self, ids: IntArray) -> tuple[RadixNode, list[IntArray], int]:
        self._tick += 1
        node, position, slots = self._root, 0, list[IntArray]()
        while position < len(ids):
            child = node.children.get(int(ids[position]))
            if child is None:
                break
            length = common_length(child.ids, ids[position:])
            if length < len(child.ids):
                child = self._split(child, length)
            child.last_used = self._tick
            slots.append(child.slots)
            position += length
            node = child
        return node, slots, position

    def _split(self, node: RadixNode, length: int) -> RadixNode:
        parent = node.parent
        assert parent is not None, "the root is never split"
        upper = RadixNode(node.ids[:length], node.slots[:length], parent)
        upper.num_locks = node.num_locks
        upper.last_used = node.last_used
        upper.children[int(node.ids[length])] = node
        parent.children[int(upper.ids[0])] = upper
        # Copies let the whole array go once either half is evicted.
        node.ids, node.slots = node.ids[length:].copy(), node.slots[length:].copy()
        upper.ids, upper.slots = upper.ids.copy(), upper.slots.copy()
        node.parent = upper
        return upper

    def _remove(self, node: RadixNode) -> RadixNode:
        parent = node.parent
        assert parent is not None, "the root is never evicted"
        del parent.children[int(node.ids[0])]
        self._num_cached -= len(node.ids)
        return parent

    def _is_evictable(self, node: RadixNode) -> bool:
        return node.parent is not None and not node.children and node.num_locks == 0

    def _nodes(self) -> Iterator[RadixNode]:
        stack = list(self._root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    @staticmethod
    def _new_root() -> RadixNode:
        nothing = np.empty(0, dtype=np.int32)
        return RadixNode(nothing, nothing, None)
