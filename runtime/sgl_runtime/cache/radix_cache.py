"""RadixCache: a tree from token prefixes to slots, with locks, eviction and a tier on the host."""

from sgl_runtime.batch import IntArray, SlotCopies
from sgl_runtime.cache.cache_events import CacheEvents
from sgl_runtime.cache.eviction_queue import EVICTION_RANKS, EvictionPolicy, EvictionQueue
from sgl_runtime.cache.host_tier import HostTier
from sgl_runtime.cache.prefix_cache import PrefixMatch, PrefixPlace, TokenArray
from sgl_runtime.cache.radix_node import NUM_BYTES, RadixNode
from sgl_runtime.cache.radix_tree import RadixTree, as_array, as_bytes
from sgl_runtime.cache.slot_allocator import whole_pages

DEVICE_BIT = 1


class RadixCache:
    """See `PrefixCache`.

    What is on the device forms the upper part of the tree: a node is dropped from it only when nothing below is on it.
    A dropped node goes to the host where there is a tier on it and room, and else out of the tree.

    Args:
        page_size: Tokens of a page.
        policy: What is evicted first.
        host: The tier on the host, if there is one.
        events: Log of what happens, if one is wanted.
        tree: The tree, which the tier on the host shares.
    """

    def __init__(
        self,
        *,
        page_size: int = 1,
        policy: EvictionPolicy = "lru",
        tree: RadixTree | None = None,
        host: HostTier | None = None,
        events: CacheEvents | None = None,
    ) -> None:
        self._page_size = page_size
        self._tree = tree or RadixTree(page_size=page_size)
        self.top = self._tree.top
        self._host = host
        self._events = events
        self._queue = EvictionQueue(
            EVICTION_RANKS[policy], bit=DEVICE_BIT, is_evictable=lambda node: node.is_device_leaf
        )
        self._tick = 0
        self._num_cached = 0
        self._num_locked = 0

    @property
    def num_cached(self) -> int:
        """See `PrefixCache`."""
        return self._num_cached

    @property
    def num_evictable(self) -> int:
        """See `PrefixCache`."""
        return self._num_cached - self._num_locked

    @property
    def num_on_host(self) -> int:
        """See `PrefixCache`."""
        return 0 if self._host is None else self._host.num_used

    def match(self, ids: TokenArray, *, extra_key: str | None = None) -> PrefixMatch:
        """See `PrefixCache`; an edge is split where the match ends inside it."""
        nodes = self._walk(self.top, self._tree.key(ids), extra_key)
        for node in nodes:
            node.num_uses += 1
        on_device = [node.slots for node in nodes if node.slots is not None]
        num_on_host = sum(node.num_tokens for node in nodes[len(on_device) :])
        return PrefixMatch(as_array(b"".join(on_device)), nodes[-1] if nodes else self.top, num_on_host)

    def find(self, ids: TokenArray, *, extra_key: str | None = None, since: PrefixPlace | None = None) -> PrefixPlace:
        """See `PrefixCache`."""
        start, begin = self.top, 0
        if since is not None and since.node.parent is not None and since.num_tokens <= len(ids):
            # Still in the tree; whatever was cut or added, it stands for the same prefix.
            start, begin = since.node, since.num_tokens
        key = self._tree.key(ids[begin:])
        descent = self._tree.descend(start, key, extra_key)
        end = begin + descent.num_bytes // NUM_BYTES
        return PrefixPlace(
            descent.nodes[-1] if descent.nodes else start,
            end,
            end + descent.num_partial // NUM_BYTES,
            key[descent.num_bytes : descent.num_bytes + self._tree.page_bytes],
            None if descent.partial is None else descent.partial.ids,
        )

    def is_current(self, place: PrefixPlace, *, extra_key: str | None = None) -> bool:
        """See `PrefixCache`."""
        node = place.node
        if node is self.top:
            node = self._tree.root(extra_key)
        elif node.parent is None:
            return False
        edge = node.children.get(place.next_page)
        # An edge that is cut gets other bytes.
        return (None if edge is None else edge.ids) is place.edge

    def insert(
        self,
        ids: TokenArray,
        slots: IntArray,
        *,
        after: RadixNode,
        extra_key: str | None = None,
        priority: int = 0,
    ) -> PrefixMatch:
        """See `PrefixCache`."""
        key, given = self._tree.key(ids), as_bytes(slots)
        assert len(key) == len(given) == len(ids) * NUM_BYTES, "whole pages and a slot for each token"
        nodes = self._walk(after, key, extra_key)
        position, kept = 0, list[bytes]()
        for node in nodes:
            end = position + len(node.ids)
            if node.slots is None:
                self._put_on_device(node, given[position:end])
                self._queue.add(node)
            assert node.slots is not None
            kept.append(node.slots)
            position = end
        last = nodes[-1] if nodes else after
        if position < len(key):
            last = self._tree.add(last, key[position:], given[position:], extra_key)
            last.last_used = last.created = self._tick
            self._num_cached += last.num_tokens
            self._queue.add(last)
            kept.append(given[position:])
            if self._host is not None:
                self._host.inserted(last)
            if self._events is not None:
                self._events.stored(last, extra_key)
        raise_priority(last, priority)
        return PrefixMatch(as_array(b"".join(kept)), last)

    def load(self, node: RadixNode, slots: IntArray) -> None:
        """See `PrefixCache`."""
        path = []
        step: RadixNode | None = node
        while step is not None and step.slots is None:
            path.append(step)
            step = step.parent
        data, position = as_bytes(slots), 0
        for step in reversed(path):
            end = position + len(step.ids)
            self._put_on_device(step, data[position:end])
            assert self._host is not None, "only a tier on the host keeps a node that is not on the device"
            self._host.load(step)
            position = end
        assert position == len(data), "a slot for each token that is on the host only"

    def lock(self, node: RadixNode) -> None:
        """See `PrefixCache`."""
        assert node.parent is not None or node is self.top, "the node is not in the tree any more"
        step: RadixNode | None = node
        while step is not None:
            if step.num_locks == 0 and step.slots is not None:
                self._num_locked += step.num_tokens
            step.num_locks += 1
            step = step.parent

    def unlock(self, node: RadixNode) -> None:
        """See `PrefixCache`; counts as a use."""
        self._tick += 1
        step: RadixNode | None = node
        while step is not None:
            assert step.num_locks > 0, "a node was unlocked more often than locked"
            step.num_locks -= 1
            step.last_used = self._tick
            if step.num_locks == 0:
                if step.slots is not None:
                    self._num_locked -= step.num_tokens
                self._queue.add(step)
                if self._host is not None:
                    self._host.consider(step)
            step = step.parent

    def evict(self, count: int) -> IntArray:
        """See `PrefixCache`; of the last leaf no more pages go than are needed, from its end."""
        freed, num_freed = list[bytes](), 0
        while num_freed < count:
            node = self._queue.pop()
            if node is None:
                break
            spare = node.num_tokens - whole_pages(count - num_freed, self._page_size)
            if spare > 0:
                self._split(node, spare * NUM_BYTES)
            assert node.slots is not None, "what is evicted is on the device"
            freed.append(node.slots)
            num_freed += node.num_tokens
            self._drop(node)
        return as_array(b"".join(freed))

    def take_copies(self) -> tuple[SlotCopies | None, SlotCopies | None]:
        """See `PrefixCache`."""
        return (None, None) if self._host is None else self._host.take_copies()

    def clear(self) -> IntArray:
        """See `PrefixCache`."""
        assert self._num_locked == 0, f"{self._num_locked} cached tokens are in use"
        slots = self.all_slots()
        if self._events is not None:
            self._events.cleared()
        self._queue.clear()
        if self._host is not None:
            self._host.clear()
        self._tree.clear()
        self._num_cached = 0
        return slots

    def all_slots(self) -> IntArray:
        """See `PrefixCache`."""
        return as_array(b"".join(node.slots for node in self._tree.nodes() if node.slots is not None))

    def check(self) -> None:
        """See `PrefixCache`."""
        check_tree(self._tree, num_cached=self._num_cached, num_locked=self._num_locked)
        if self._host is not None:
            self._host.check()

    def _walk(self, start: RadixNode, key: bytes, extra_key: str | None) -> list[RadixNode]:
        """The edges that a key runs through, the last cut where it ends; all are marked as used."""
        self._tick += 1
        descent = self._tree.descend(start, key, extra_key)
        nodes = descent.nodes
        if descent.partial is not None:
            nodes.append(self._split(descent.partial, descent.num_partial))
        for node in nodes:
            node.last_used = self._tick
        return nodes

    def _put_on_device(self, node: RadixNode, slots: bytes) -> None:
        assert node.slots is None, "the node is on the host only"
        assert node.parent is not None, "the node is in the tree"
        node.slots = slots
        node.parent.num_on_device += 1
        self._num_cached += node.num_tokens
        self._num_locked += node.num_tokens if node.num_locks else 0
        if self._events is not None:
            self._events.loaded(node)

    def _split(self, node: RadixNode, num_bytes: int) -> RadixNode:
        upper = self._tree.split(node, num_bytes)
        if self._host is not None:
            self._host.split(upper)
        if self._events is not None:
            self._events.split(upper, node)
        return upper

    def _drop(self, node: RadixNode) -> None:
        """Off the device, to the host if it has room."""
        self._num_cached -= node.num_tokens
        parent = node.parent
        assert parent is not None, "the node is in the tree"
        if self._host is not None and self._host.keep(node):
            parent.num_on_device -= 1
        else:
            for step in reversed(list(self._tree.nodes(below=node))):
                if self._host is not None:
                    self._host.forget(step)
                self._tree.remove(step)
                if self._events is not None:
                    self._events.removed(step)
        self._queue.add(parent)


def raise_priority(node: RadixNode, priority: int) -> None:
    """An edge is worth as much as the most urgent request that went through it."""
    step: RadixNode | None = node
    while step is not None and step.priority < priority:
        step.priority = priority
        step = step.parent


def check_tree(tree: RadixTree, *, num_cached: int, num_locked: int) -> None:
    """Recount a tree.

    Raises:
        AssertionError: something does not add up.
    """
    nodes = list(tree.nodes())
    cached = sum(node.num_tokens for node in nodes if node.slots is not None)
    locked = sum(node.num_tokens for node in nodes if node.slots is not None and node.num_locks)
    assert cached == num_cached, f"{cached} tokens in the tree, {num_cached} counted"
    assert locked == num_locked, f"{locked} tokens locked, {num_locked} counted"
    for node in nodes:
        assert node.parent is not None, "an edge hangs on something"
        for slots in (node.slots, node.host_slots):
            assert slots is None or len(slots) == len(node.ids) > 0, "an edge holds one slot for each of its tokens"
        assert node.slots is not None or node.host_slots is not None, "an edge is somewhere"
        assert len(node.ids) % tree.page_bytes == 0, "an edge holds whole pages"
        assert node.parent.children[node.ids[: tree.page_bytes]] is node, "a child lies under its first page"
        on_device = sum(child.slots is not None for child in node.children.values())
        assert on_device == node.num_on_device, f"{on_device} children on the device, {node.num_on_device} counted"
        assert node.slots is not None or on_device == 0, "what is on the device hangs on what is on it"
        if node.parent.ids:
            assert node.parent.num_locks >= node.num_locks, "a lock holds everything above it"
