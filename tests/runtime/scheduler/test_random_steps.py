"""Random steps through planner, ledger, cache and scripted executor: nothing is lost, and no text changes.

The scripted executor makes the copies between device and host too, so a wrong copy changes a text.
"""

import random
from typing import Any

import numpy as np
import pytest

from fakes.scripted_executor import logprob_of, next_token
from sgl_runtime.cache.cache_pools import CachePools
from sgl_runtime.ipc.messages import AbortRequest, FlushCacheRequest, TokenDelta, TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams

DRAWN = 3
"""Few different tokens, so that outputs of one request are often prefixes of others."""

CONFIGS: dict[str, dict[str, Any]] = {
    "pages of 1": {},
    "pages of 1 in overlap, chunks": {"overlap": True, "chunked_prefill_size": 9, "max_prefill_tokens": 30},
    "pages of 16": {"cache": {"page_size": 16}, "overlap": True},
    "pages of 16, chunks": {"cache": {"page_size": 16}, "chunked_prefill_size": 20, "enable_mixed_chunk": True},
    "pages of 16, mixed in overlap": {
        "cache": {"page_size": 16},
        "overlap": True,
        "chunked_prefill_size": 20,
        "enable_mixed_chunk": True,
        "schedule_policy": "dfs-weight",
    },
    "a pool of one context in overlap, chunks": {"num_slots": 128, "overlap": True, "chunked_prefill_size": 20},
    "a pool of one context, pages of 16, mixed": {
        "num_slots": 128,
        "cache": {"page_size": 16},
        "chunked_prefill_size": 20,
        "enable_mixed_chunk": True,
    },
    "pages of 4, no cache": {"cache": {"page_size": 4}, "cached": False, "overlap": True},
    "written back": {"host_slots": 256, "cache": {"enable_hierarchical_cache": True}, "chunked_prefill_size": 25},
    "written back in overlap, pages of 16": {
        "host_slots": 512,
        "cache": {"enable_hierarchical_cache": True, "page_size": 16, "radix_eviction_policy": "lfu"},
        "overlap": True,
        "chunked_prefill_size": 25,
        "enable_mixed_chunk": True,
    },
    "written through in overlap": {
        "host_slots": 128,
        "cache": {
            "enable_hierarchical_cache": True,
            "hicache_write_policy": "write_through",
            "radix_eviction_policy": "priority",
        },
        "overlap": True,
    },
    "written through, pages of 16": {
        "host_slots": 256,
        "cache": {
            "enable_hierarchical_cache": True,
            "hicache_write_policy": "write_through",
            "page_size": 16,
            "radix_eviction_policy": "fifo",
        },
    },
}


def audit(pools: CachePools) -> None:
    """Every slot is free, cached or held by a row, once."""
    pools.check()
    pools.cache.check()
    slots = np.concatenate([pools.cache.all_slots(), pools.allocator.free_slots()])
    assert len(np.unique(slots)) == len(slots), "a slot is owned twice"


class Traffic:
    """Requests that come and go at random, and what each of them must give."""

    def __init__(self, bench: Any, rng: random.Random) -> None:
        self.bench, self.rng = bench, rng
        self.live: dict[str, TokenizedRequest] = {}
        self.ids: dict[str, list[int]] = {}
        self.num_sent = self.num_ended = 0
        self.stems = [[rng.randrange(DRAWN) for _ in range(70)] for _ in range(3)]

    def send(self) -> None:
        rng = self.rng
        stem = rng.choice(self.stems)[: rng.randrange(71)]
        ids = [*stem, *(rng.randrange(DRAWN) for _ in range(rng.randrange(1, 20)))]
        rid = f"r{self.num_sent}"
        self.num_sent += 1
        start = rng.choice([-1, -1, -1, rng.randrange(len(ids))])
        self.live[rid] = TokenizedRequest(
            rid=rid,
            input_ids=ids,
            sampling=SamplingParams(max_new_tokens=rng.randrange(30), temperature=0.0),
            priority=rng.choice([0, 0, 1, 40]),
            extra_key=rng.choice([None, None, "a"]),
            return_logprob=start >= 0,
            logprob_start_len=start,
        )
        self.ids[rid] = list(ids)
        self.bench.scheduler.accept(self.live[rid])

    def abort(self) -> None:
        if self.live:
            rid = self.rng.choice(sorted(self.live))
            del self.live[rid], self.ids[rid]
            self.bench.scheduler.accept(AbortRequest(request_id="x", rid=rid))

    def step(self) -> None:
        for output in self.bench.scheduler.step():
            if isinstance(output, TokenDelta) and output.rid in self.live:
                self.check(output)

    def check(self, delta: TokenDelta) -> None:
        message, ids = self.live[delta.rid], self.ids[delta.rid]
        if delta.input_logprobs is not None:
            places = range(message.logprob_start_len, len(ids))
            assert delta.input_logprobs == [logprob_of(ids[:at], ids[at]) if at else None for at in places]
        for token in delta.new_ids:
            assert token == next_token(ids, DRAWN), f"{delta.rid} after {len(ids)} tokens"
            ids.append(token)
        if delta.finish is not None:
            assert delta.finish.type == "length"
            assert len(ids) == len(message.input_ids) + message.sampling.max_new_tokens
            del self.live[delta.rid], self.ids[delta.rid]
            self.num_ended += 1


def run(make_bench: Any, settings: dict[str, Any], *, seed: int, num_steps: int) -> dict[str, Any]:
    rng = random.Random(seed)
    bench = make_bench(
        **{
            "num_slots": 256,
            "max_running": 6,
            "context": 128,
            "drawn": DRAWN,
            "schedule_conservativeness": 0.2,
            **settings,
        }
    )
    traffic = Traffic(bench, rng)
    pools = bench.scheduler._pools
    for count in range(num_steps):
        if len(traffic.live) < 12 and rng.random() < 0.35:
            traffic.send()
        if rng.random() < 0.03:
            traffic.abort()
        traffic.step()
        if count % 7 == 0:
            audit(pools)
        if rng.random() < 0.002:
            while bench.scheduler.has_work():
                traffic.step()
            bench.scheduler.accept(FlushCacheRequest(request_id="f"))
            assert pools.allocator.num_free == pools.allocator.num_slots
    while bench.scheduler.has_work():
        traffic.step()
    assert not traffic.live
    audit(pools)
    assert traffic.num_ended > num_steps // 40
    return {**bench.scheduler.stats(), "copies": [(b.stores, b.loads) for b in bench.executor.batches]}


@pytest.mark.parametrize("name", CONFIGS)
def test_random_steps_lose_no_slot_and_change_no_text(make_bench, name):
    stats = run(make_bench, CONFIGS[name], seed=1, num_steps=400)
    assert stats["num_retracted_total"] > 0
    if "cached" not in CONFIGS[name]:
        assert stats["cached_tokens_total"] > 0
    if "host_slots" in CONFIGS[name]:
        assert any(stores is not None for stores, _ in stats["copies"])
        assert any(loads is not None for _, loads in stats["copies"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 4))
@pytest.mark.parametrize("name", CONFIGS)
def test_a_hundred_thousand_random_steps(make_bench, name, seed):
    run(make_bench, CONFIGS[name], seed=seed, num_steps=6000)
