"""A viewer that reads the log knows the tree."""

import random

import numpy as np

from sgl_runtime.cache.cache_events import CacheEvent, CacheEvents
from sgl_runtime.cache.host_tier import HostTier
from sgl_runtime.cache.radix_cache import RadixCache
from sgl_runtime.cache.radix_node import RadixNode
from sgl_runtime.cache.radix_tree import RadixRoot, RadixTree, as_array
from sgl_runtime.cache.slot_allocator import SlotAllocator


class Viewer:
    """Rebuilds tokens and places of all nodes from events alone."""

    def __init__(self) -> None:
        self.ids: dict[int, list[int]] = {}
        self.parents: dict[int, int] = {}
        self.on_device: dict[int, bool] = {}
        self.keys: dict[int, str | None] = {}

    def show(self, event: CacheEvent) -> None:
        node = event.node
        match event.kind:
            case "stored":
                self.ids[node], self.parents[node] = event.token_ids, event.parent
                self.on_device[node], self.keys[node] = True, event.extra_key
            case "split":
                upper, count = event.parent, event.num_tokens
                self.ids[upper], self.ids[node] = self.ids[node][:count], self.ids[node][count:]
                self.parents[upper], self.parents[node] = self.parents[node], upper
                self.on_device[upper] = self.on_device[node]
                self.keys[upper] = self.keys[node]
            case "to_host" | "loaded":
                self.on_device[node] = event.kind == "loaded"
            case "removed":
                for column in (self.ids, self.parents, self.on_device, self.keys):
                    del column[node]
            case "cleared":
                for column in (self.ids, self.parents, self.on_device, self.keys):
                    column.clear()


def test_events_rebuild_the_tree():
    rng = random.Random(5)
    events, tree = CacheEvents(), RadixTree(page_size=2)
    host = HostTier(tree, num_slots=60, page_size=2, events=events)
    cache = RadixCache(page_size=2, tree=tree, host=host, events=events)
    allocator = SlotAllocator(num_slots=100, page_size=2)
    viewer, seen, kinds = Viewer(), 0, set()
    for count in range(3000):
        ids = np.array([rng.randrange(2) for _ in range(2 * rng.randrange(1, 7))])
        key = rng.choice([None, "a"])
        allocator.free(cache.evict(max(0, len(ids) - allocator.num_free)))
        match = cache.match(ids, extra_key=key)
        if match.num_on_host and allocator.num_free >= match.num_on_host:
            cache.lock(match.node)
            cache.load(match.node, allocator.allocate(match.num_on_host))
            cache.unlock(match.node)
        elif allocator.num_free >= len(ids):
            slots = allocator.allocate(len(ids))
            kept = cache.insert(ids, slots, after=cache.top, extra_key=key)
            allocator.free(slots[slots != kept.slots])
        cache.take_copies()
        if count % 1000 == 999:
            allocator.free(cache.clear())
        for event in events.since(seen):
            assert event.number == seen
            viewer.show(event)
            kinds.add(event.kind)
            seen += 1
        nodes = {node.serial: node for node in tree.nodes()}
        assert viewer.ids == {serial: as_array(node.ids).tolist() for serial, node in nodes.items()}
        assert viewer.on_device == {serial: node.slots is not None for serial, node in nodes.items()}
        assert viewer.keys == {serial: key_of(node) for serial, node in nodes.items()}
        assert viewer.parents == {serial: parent_of(node).serial for serial, node in nodes.items()}
    assert kinds == {"stored", "split", "to_host", "loaded", "removed", "cleared"}
    cache.check()


def key_of(node: RadixNode) -> str | None:
    while node.parent is not None:
        node = node.parent
    assert isinstance(node, RadixRoot)
    return node.extra_key


def parent_of(node: RadixNode) -> RadixNode:
    assert node.parent is not None
    return node.parent


def test_only_the_newest_events_are_kept():
    events = CacheEvents(limit=3)
    for _ in range(5):
        events.cleared()
    assert [event.number for event in events.since(0)] == [2, 3, 4]
    assert [event.number for event in events.since(4)] == [4]
