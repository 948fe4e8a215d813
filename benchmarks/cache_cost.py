"""What the prefix cache costs the host: time of its calls, bytes of memory.  No model and no device.

    python benchmarks/cache_cost.py

Targets: a match of a 32k prompt in a tree of a million tokens under 1 ms; under 40 bytes a cached token; the cost of an
eviction does not grow with the tree; slots for a decode pass over 256 requests under 50 us; where nothing repeats the
cache costs under 0.5 % of the time that the model takes.
"""

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from sgl_runtime.cache.build_pools import build_pools
from sgl_runtime.cache.cache_pools import CachePools
from sgl_runtime.cache.radix_cache import RadixCache
from sgl_runtime.config import CacheConfig
from sgl_runtime.ipc.messages import TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.scheduler.req import Req
from sgl_runtime.scheduler.slot_ledger import SlotLedger

VOCABULARY_SIZE = 100_000


def median_us(call: Callable[[], object], repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return float(np.median(times)) * 1e6


def chat_tree(num_tokens: int, *, turn_len: int, page_size: int = 1) -> RadixCache:
    """Conversations below a few system prompts, each inserted turn by turn, so that each turn is an edge."""
    rng = np.random.default_rng(0)
    systems = [rng.integers(0, VOCABULARY_SIZE, 2048) for _ in range(4)]
    cache, slot = RadixCache(page_size=page_size), 0
    while cache.num_cached < num_tokens:
        ids = systems[int(rng.integers(4))]
        for _ in range(int(rng.integers(1, 9))):
            ids = np.concatenate([ids, rng.integers(0, VOCABULARY_SIZE, turn_len)])
            cache.insert(ids, np.arange(slot, slot + len(ids), dtype=np.int32), after=cache.top)
            slot += len(ids)
    return cache


def long_conversation(cache: RadixCache, *, num_tokens: int, turn_len: int) -> np.ndarray:
    ids = np.random.default_rng(1).integers(0, VOCABULARY_SIZE, num_tokens)
    for end in range(turn_len, num_tokens + 1, turn_len):
        cache.insert(ids[:end], np.arange(end, dtype=np.int32), after=cache.top)
    return ids


def print_match() -> None:
    for num_turns in (1, 10, 100):
        cache = chat_tree(1_000_000, turn_len=256)
        ids = long_conversation(cache, num_tokens=32_000, turn_len=32_000 // num_turns)
        us = median_us(lambda cache=cache, ids=ids: cache.match(ids), 50)
        print(f"match of 32,000 tokens over {num_turns} edges, tree of {cache.num_cached:,} tokens: {us:.0f} us")


def print_memory() -> None:
    for page_size in (1, 16):
        for turn_len in (32, 256):
            gc.collect()
            tracemalloc.start()
            cache = chat_tree(1_000_000, turn_len=turn_len, page_size=page_size)
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            print(
                f"memory, edges of {turn_len} tokens, pages of {page_size}: {held / cache.num_cached:.1f} bytes a token"
            )


def print_eviction() -> None:
    for num_tokens in (10_000, 100_000, 1_000_000):
        cache = chat_tree(num_tokens, turn_len=64)
        us = median_us(lambda cache=cache: cache.evict(64), 60)
        print(f"eviction of 64 tokens, tree of {num_tokens:,}: {us:.1f} us")


def request(rid: str, ids: np.ndarray, max_new: int) -> Req:
    message = TokenizedRequest(
        rid=rid, input_ids=ids.tolist(), sampling=SamplingParams(max_new_tokens=max_new, temperature=0.0)
    )
    return Req(message, seed=0, arrival=0)


def pools(num_slots: int, *, num_rows: int, cached: bool = True, page_size: int = 1) -> CachePools:
    config = CacheConfig(max_total_tokens=num_slots, page_size=page_size, disable_radix_cache=not cached)
    return build_pools(config, num_rows=num_rows, context_length=8192, num_host_slots=0)


def start(ledger: SlotLedger, req: Req) -> None:
    match = ledger.match(req)
    ledger.pools.cache.lock(match.node)
    num_new = len(req.tokens) - match.length
    assert ledger.admit(req, match, num_new=num_new)
    req.num_computed = len(req.tokens)


def print_decode_slots() -> None:
    rng = np.random.default_rng(0)
    for page_size in (1, 16):
        ledger = SlotLedger(pools(1_000_000 // 16 * 16, num_rows=256, page_size=page_size))
        reqs = [request(f"r{i}", rng.integers(0, 9, int(rng.integers(50, 500))), 4000) for i in range(256)]
        for req in reqs:
            start(ledger, req)

        def decode(ledger: SlotLedger = ledger, reqs: list[Req] = reqs) -> tuple[float, float]:
            counts = [1] * len(reqs)
            begin = time.perf_counter()
            need = ledger.need(reqs, counts)
            assert need.missing.sum() <= ledger.pools.num_available
            middle = time.perf_counter()
            ledger.extend(reqs, counts, need)
            end = time.perf_counter()
            for req in reqs:
                req.num_computed += 1
                req.append(0)
            return middle - begin, end - middle

        needed, given = np.median(np.array([decode() for _ in range(500)]), axis=0) * 1e6
        print(f"decode pass of 256, pages of {page_size}: need {needed:.0f} us, extend {given:.0f} us")


def print_overhead(prompt_len: int, output_len: int, tokens_per_s: float) -> None:
    """Requests that share nothing, with and without the cache, in a pool that is full all the time."""
    seconds = {}
    for cached in (False, True):
        ledger = SlotLedger(pools(64_000, num_rows=16, cached=cached))
        rng = np.random.default_rng(0)
        prompts = [rng.integers(0, VOCABULARY_SIZE, prompt_len) for _ in range(400)]
        reqs = [request(f"r{i}", ids, output_len) for i, ids in enumerate(prompts)]
        total = 0.0
        for place, req in enumerate(reqs):
            begin = time.perf_counter()
            start(ledger, req)
            ledger.share(req)
            total += time.perf_counter() - begin
            for _ in range(output_len):
                req.append(7)
            begin = time.perf_counter()
            ledger.extend([req], [output_len], ledger.need([req], [output_len]))
            req.num_computed += output_len
            ledger.release(req)
            total += time.perf_counter() - begin
            if place == 99:
                total = 0.0
        seconds[cached] = total / 300
    model_s = (prompt_len + output_len) / tokens_per_s
    extra = seconds[True] - seconds[False]
    print(
        f"nothing repeats, {prompt_len} + {output_len} tokens: {extra * 1e6:.0f} us a request over no cache,"
        f" {100 * extra / model_s:.2f} % of the time at {tokens_per_s:,.0f} tokens a second"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens-per-second", type=float, default=20_000, help="of the model, prompt and output")
    speed = parser.parse_args().tokens_per_second
    print_match()
    print_memory()
    print_eviction()
    print_decode_slots()
    for prompt_len, output_len in ((1000, 200), (200, 50)):
        print_overhead(prompt_len, output_len, speed)


if __name__ == "__main__":
    main()
