"""Builds the cache of a configuration."""

from sgl_runtime.cache.cache_events import CacheEvents
from sgl_runtime.cache.cache_pools import CachePools
from sgl_runtime.cache.host_tier import HostTier
from sgl_runtime.cache.no_cache import NoCache
from sgl_runtime.cache.prefix_cache import PrefixCache
from sgl_runtime.cache.radix_cache import RadixCache
from sgl_runtime.cache.radix_tree import RadixTree
from sgl_runtime.cache.req_to_token_pool import ReqToTokenPool
from sgl_runtime.cache.slot_allocator import SlotAllocator
from sgl_runtime.config import CacheConfig


def build_pools(config: CacheConfig, *, num_rows: int, context_length: int, num_host_slots: int) -> CachePools:
    """Allocator, rows and prefix cache.

    Args:
        config: The section, resolved.
        num_rows: Requests that may run together.
        context_length: Most tokens of a request.
        num_host_slots: Slots of the pool in host memory; 0 for none.
    """
    assert config.max_total_tokens is not None, "the number of slots is resolved before the pools are built"
    page_size = config.page_size
    events = CacheEvents() if config.kv_events else None
    cache: PrefixCache
    if config.disable_radix_cache:
        cache = NoCache()
    else:
        tree = RadixTree(page_size=page_size)
        host = None
        if num_host_slots:
            host = HostTier(
                tree,
                num_slots=num_host_slots,
                page_size=page_size,
                policy=config.radix_eviction_policy,
                write_policy=config.hicache_write_policy,
                events=events,
            )
        cache = RadixCache(
            page_size=page_size, policy=config.radix_eviction_policy, tree=tree, host=host, events=events
        )
    return CachePools(
        SlotAllocator(num_slots=config.max_total_tokens, page_size=page_size),
        ReqToTokenPool(num_rows=num_rows, context_length=context_length, page_size=page_size),
        cache,
        events,
    )
