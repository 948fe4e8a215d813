"""What "auto" and defaults of a RuntimeConfig come to, each decided once."""

import os
from dataclasses import replace
from pathlib import Path

from sgl_runtime.config import CacheConfig, RuntimeConfig, SchedulerConfig
from sgl_runtime.errors import ConfigError

CPU_SLOT_LIMIT = 65_536


def resolve_cache(
    config: CacheConfig, *, free_bytes: int, slot_bytes: int, slot_limit: int | None, default_fraction: float
) -> CacheConfig:
    """Turn the default number of slots into a number.

    Args:
        config: The section as given.
        free_bytes: Memory free after the weights are loaded.
        slot_bytes: Bytes of keys and values of one token over all layers.
        slot_limit: Most slots worth holding on this device; None for no limit.
        default_fraction: Share of the free memory that is taken by default.
    """
    if config.max_total_tokens is not None:
        return config
    num_slots = int(free_bytes * (config.mem_fraction_static or default_fraction)) // slot_bytes
    num_slots = min(num_slots, slot_limit or num_slots)
    return replace(config, max_total_tokens=num_slots // config.page_size * config.page_size)


def host_slots(config: CacheConfig, *, slot_bytes: int) -> int:
    """Slots of the pool in host memory; 0 without one.

    Args:
        config: The section, resolved.
        slot_bytes: Bytes of keys and values of one token over all layers.

    Raises:
        ConfigError: the pool would not hold a page.
    """
    if not config.enable_hierarchical_cache:
        return 0
    assert config.max_total_tokens is not None, "the number of slots is resolved first"
    num_slots = int(config.max_total_tokens * config.hicache_ratio)
    if config.hicache_size is not None:
        num_slots = int(config.hicache_size * 1e9) // slot_bytes
    if num_slots < config.page_size:
        name, value = ("hicache_ratio", config.hicache_ratio)
        if config.hicache_size is not None:
            name, value = ("hicache_size", config.hicache_size)
        raise ConfigError(f"{name} is {value}; it must give room for at least one page of {config.page_size} tokens")
    return num_slots // config.page_size * config.page_size


ENCODER_SLOTS = 65_536
"""Tokens of an encoder's requests that run at a time, where nothing is said; they hold no memory between passes."""


ENCODER_PASS = 4096
"""Tokens of an encoder's pass, where nothing else is said: more in one make it no faster, and everybody wait longer."""


def resolve_encoder(config: RuntimeConfig) -> RuntimeConfig:
    """What a configuration comes to for an encoder: it reads every text in one pass, and keeps no keys and values.

    Raises:
        ConfigError: an option asks for prefixes to be kept, or for texts to be cut.
    """
    chunk = config.scheduler.chunked_prefill_size
    for name, value, neutral in (
        ("chunked_prefill_size", chunk, (None, -1)),
        ("enable_hierarchical_cache", config.cache.enable_hierarchical_cache, (False,)),
        ("kv_events", config.cache.kv_events, (False,)),
    ):
        if value not in neutral:
            raise ConfigError(f"{name} is {value}; with an encoder, which keeps no prefixes, it must be {neutral[-1]}")
    return replace(
        config,
        scheduler=replace(
            config.scheduler,
            chunked_prefill_size=-1,
            max_prefill_tokens=config.scheduler.max_prefill_tokens or ENCODER_PASS,
        ),
        cache=replace(config.cache, disable_radix_cache=True, page_size=1),
    )


CHUNK_ON_HOST = 512
CHUNK_BESIDE_HOST = 8192


def resolve_scheduler(config: SchedulerConfig, *, runs_beside_host: bool) -> SchedulerConfig:
    """Turn the default sizes of prefill passes into numbers.

    Args:
        config: The section as given.
        runs_beside_host: Whether passes run on an accelerator.
    """
    chunk = config.chunked_prefill_size
    if chunk is None:
        chunk = CHUNK_BESIDE_HOST if runs_beside_host else CHUNK_ON_HOST
    most = config.max_prefill_tokens
    if most is None:
        most = 2 * (chunk if chunk > 0 else CHUNK_BESIDE_HOST)
    return replace(config, chunked_prefill_size=chunk, max_prefill_tokens=most)


def resolve_context_length(asked: int | None, *, model_limit: int, num_slots: int) -> int:
    """The context limit: what was asked for or the model's own, and no more than the slots hold.

    Raises:
        ConfigError: the pool of slots or the asked length is too small to serve anything.
    """
    length = min(asked or model_limit, num_slots)
    if length < 8:
        raise ConfigError(
            f"room for only {length} tokens of context; raise max_total_tokens, mem_fraction_static or context_length"
        )
    return length


ENVIRONMENT_PREFIX = "SGL_"
"""Begins the names of environment variables that set options: SGL_PORT is `port`."""


def environment_options() -> dict[str, str]:
    """What the environment says of options, by the names that they would have; others may be among them."""
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): text
        for name, text in os.environ.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }


QUEUE_OF_SERVER = 16_384
"""Requests that may wait in a server where nothing is said: what waits holds memory, and is answered late."""


def resolve_queue(config: SchedulerConfig) -> SchedulerConfig:
    """Bound the queue of a server; an `Engine`, whose caller holds the requests anyway, has no bound."""
    return config if config.max_queued_requests is not None else replace(config, max_queued_requests=QUEUE_OF_SERVER)


def cache_folder() -> Path:
    """Where this user's derived files are kept: $SGL_CACHE_DIR, or `sgl` in the user's cache folder."""
    chosen = os.environ.get("SGL_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sgl"


SPIN_COUNT = 20_000
"""Turns that an idle thread of a parallel region waits before it sleeps; GNU OpenMP's own default is 15 times this."""


def bound_thread_spinning() -> None:
    """Keep idle threads of tensor work from burning the cores that others need; called before torch is loaded.

    An idle thread that stays awake takes a core from the API, the detokenizer, or whatever else runs.  A setting of
    the user's own stands.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))


def allows_native_modules() -> bool:
    """Whether modules that were compiled to machine code may be used: not where SGL_NATIVE is 0."""
    return os.environ.get("SGL_NATIVE") != "0"
