import random

import numpy as np
import pytest

from sgl_runtime.cache.radix_cache import RadixCache


def insert(cache: RadixCache, ids: list[int], first_slot: int, *, priority: int = 0) -> None:
    slots = np.arange(first_slot, first_slot + len(ids), dtype=np.int32)
    cache.insert(np.array(ids), slots, after=cache.top, priority=priority)


def test_least_recently_used_leaf_goes_first():
    cache = RadixCache()
    insert(cache, [1, 2, 3], 0)
    insert(cache, [7, 8, 9], 10)
    cache.match(np.array([1, 2, 3]))
    assert sorted(cache.evict(3).tolist()) == [10, 11, 12]
    assert cache.match(np.array([1, 2, 3])).length == 3


def test_an_edge_gives_up_its_end_first_and_no_more_than_is_needed():
    cache = RadixCache(page_size=2)
    insert(cache, [1, 2, 3, 4, 5, 6], 0)
    assert cache.evict(1).tolist() == [4, 5]
    assert cache.match(np.array([1, 2, 3, 4, 5, 6])).slots.tolist() == [0, 1, 2, 3]
    cache.check()


def test_locked_prefix_survives_eviction():
    cache = RadixCache()
    insert(cache, [1, 2, 3, 4], 0)
    match = cache.match(np.array([1, 2]))
    cache.lock(match.node)
    assert sorted(cache.evict(100).tolist()) == [2, 3]
    assert cache.match(np.array([1, 2, 3, 4])).length == 2
    cache.unlock(match.node)
    assert sorted(cache.evict(100).tolist()) == [0, 1]


def test_branches_share_their_prefix():
    cache = RadixCache()
    insert(cache, [1, 2, 3], 0)
    kept = cache.insert(np.array([1, 2, 9]), np.array([50, 51, 52], dtype=np.int32), after=cache.top)
    assert kept.slots.tolist() == [0, 1, 52]
    assert cache.match(np.array([1, 2, 9])).slots.tolist() == [0, 1, 52]
    assert cache.num_cached == 4


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("lru", [20, 0, 10]),
        ("fifo", [0, 10, 20]),
        ("lfu", [20, 10, 0]),
        ("priority", [0, 20, 10]),
    ],
)
def test_policies_choose_what_goes_first(policy, order):
    cache = RadixCache(policy=policy)
    insert(cache, [1, 2], 0)
    insert(cache, [3, 4], 10, priority=2)
    insert(cache, [5, 6], 20, priority=1)
    for ids in ([1, 2], [1, 2], [3, 4]):
        cache.match(np.array(ids))
    assert [int(cache.evict(2)[0]) for _ in range(3)] == order


def test_a_prefix_is_worth_its_most_urgent_request():
    cache = RadixCache(policy="priority")
    insert(cache, [1, 2], 0)
    insert(cache, [1, 2, 3], 0, priority=5)
    insert(cache, [7, 8], 10, priority=4)
    assert cache.evict(1).tolist() == [11]


def test_extra_keys_share_nothing_and_leave_nothing_behind():
    cache = RadixCache()
    ids = np.array([1, 2, 3])
    for place, key in enumerate([None, "a", "b", ""]):
        slots = np.arange(3, dtype=np.int32) + 10 * place
        assert cache.match(ids, extra_key=key).length == 0
        assert cache.insert(ids, slots, after=cache.top, extra_key=key).slots.tolist() == slots.tolist()
    assert cache.num_cached == 12
    assert cache.match(ids, extra_key="b").slots.tolist() == [20, 21, 22]
    assert cache.match(ids, extra_key="unknown").length == 0
    assert len(cache.evict(100)) == 12
    assert list(cache._tree._roots) == []


def test_looking_up_a_length_changes_nothing():
    cache = RadixCache(page_size=2)
    insert(cache, [1, 2, 3, 4, 5, 6], 0)
    insert(cache, [9, 9], 20)
    assert cache.find(np.array([1, 2, 3, 4, 5])).length == 4
    assert cache.find(np.array([1, 2, 3])).length == 2
    assert cache.find(np.array([2, 2, 3])).length == 0
    assert cache.evict(2).tolist() == [4, 5], "the first is still the least recently used"


def test_eviction_looks_at_few_nodes_however_large_the_tree():
    cache = RadixCache()
    rng = random.Random(0)
    for place in range(2000):
        insert(cache, [rng.randrange(50), rng.randrange(50), place], 3 * place)
    looked_at = 0
    queue = cache._queue
    plain = queue._is_evictable

    def counting(node):
        nonlocal looked_at
        looked_at += 1
        return plain(node)

    queue._is_evictable = counting
    for _ in range(100):
        cache.evict(1)
    assert looked_at < 1000
    cache.check()
