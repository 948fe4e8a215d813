import pytest

from sgl_runtime.cache.build_pools import build_pools
from sgl_runtime.config import CacheConfig, ModelSection, RuntimeConfig
from sgl_runtime.config_values import host_slots, resolve_cache
from sgl_runtime.errors import ConfigError


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"page_size": 0}, "page_size is 0; it must be a power of two from 1 to 256"),
        ({"page_size": 24}, "page_size is 24; it must be a power of two from 1 to 256"),
        ({"page_size": 512}, "page_size is 512; it must be a power of two from 1 to 256"),
        (
            {"page_size": 16, "max_total_tokens": 1000},
            "max_total_tokens is 1000; it must be a multiple of page_size, 16",
        ),
        ({"hicache_ratio": 0.0}, "hicache_ratio is 0.0; it must be a number above 0"),
        ({"hicache_size": float("nan")}, "hicache_size is nan; it must be a number above 0"),
        (
            {"enable_hierarchical_cache": True, "disable_radix_cache": True},
            "enable_hierarchical_cache is true; it must be false where disable_radix_cache is true",
        ),
        (
            {"kv_events": True, "disable_radix_cache": True},
            "kv_events is true; it must be false where disable_radix_cache is true",
        ),
    ],
)
def test_wrong_options_are_refused_by_name_value_and_range(section, message):
    with pytest.raises(ConfigError) as error:
        RuntimeConfig(model=ModelSection(model_path="m"), cache=CacheConfig(**section))
    assert error.value.message == message


def test_the_default_number_of_slots_is_whole_pages():
    config = resolve_cache(
        CacheConfig(page_size=64), free_bytes=100_000, slot_bytes=7, slot_limit=None, default_fraction=0.5
    )
    assert config.max_total_tokens == 50_000 // 7 // 64 * 64


@pytest.mark.parametrize(
    ("section", "slots"),
    [
        ({}, 0),
        ({"enable_hierarchical_cache": True}, 2048),
        ({"enable_hierarchical_cache": True, "hicache_ratio": 0.3}, 304),
        ({"enable_hierarchical_cache": True, "hicache_size": 0.001}, 992),
    ],
)
def test_the_host_pool_is_sized_by_ratio_or_bytes(section, slots):
    config = CacheConfig(max_total_tokens=1024, page_size=16, **section)
    assert host_slots(config, slot_bytes=1000) == slots


def test_a_host_pool_without_room_for_a_page_is_refused():
    config = CacheConfig(max_total_tokens=1024, page_size=256, enable_hierarchical_cache=True, hicache_size=1e-4)
    with pytest.raises(ConfigError, match=r"hicache_size is 0\.0001; it must give room for at least one page of 256"):
        host_slots(config, slot_bytes=1000)


def test_events_are_kept_where_they_are_wanted():
    for wanted in (False, True):
        config = CacheConfig(max_total_tokens=32, kv_events=wanted)
        assert (build_pools(config, num_rows=1, context_length=8, num_host_slots=0).events is not None) == wanted
