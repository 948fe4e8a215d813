import numpy as np

from sgl_runtime.cache.radix_cache import RadixCache


def insert(cache: RadixCache, ids: list[int], first_slot: int) -> None:
    cache.insert(np.array(ids), np.arange(first_slot, first_slot + len(ids), dtype=np.int32))


def test_least_recently_used_leaf_goes_first():
    cache = RadixCache()
    insert(cache, [1, 2, 3], 0)
    insert(cache, [7, 8, 9], 10)
    cache.match(np.array([1, 2, 3]))
    assert sorted(cache.evict(1).tolist()) == [10, 11, 12]
    assert cache.match(np.array([1, 2, 3])).length == 3


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
    known = cache.insert(np.array([1, 2, 9]), np.array([50, 51, 52], dtype=np.int32))
    assert known == 2
    assert cache.match(np.array([1, 2, 9])).slots.tolist() == [0, 1, 52]
    assert cache.num_cached == 4
