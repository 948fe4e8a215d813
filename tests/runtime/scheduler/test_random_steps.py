"""Random steps, with sessions and pauses, through planner, ledger, cache and scripted executor: nothing is lost, and no text changes.

The scripted executor makes the copies between device and host too, so a wrong copy changes a text.
"""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fakes.scripted_executor import logprob_of, next_token
from sgl_runtime.cache.cache_pools import CachePools
from sgl_runtime.ipc.messages import (
    AbortRequest,
    CloseSessionRequest,
    ContinueRequest,
    FlushCacheRequest,
    OpenSessionRequest,
    PauseMode,
    PauseRequest,
    TokenDelta,
    TokenizedRequest,
)
from sgl_runtime.ipc.request_parts import SessionTurn
from sgl_runtime.sampling_params import SamplingParams

CONTEXT = 128
MAX_PRIORITY = 2**31 - 1
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
    "chunks of 1, mixed in overlap": {
        "num_slots": 128,
        "overlap": True,
        "chunked_prefill_size": 1,
        "enable_mixed_chunk": True,
    },
    "pages of 64 in a pool of three in overlap": {
        "num_slots": 192,
        "cache": {"page_size": 64},
        "overlap": True,
        "chunked_prefill_size": 50,
    },
    "a page of the whole context": {"num_slots": 256, "cache": {"page_size": 128}, "chunked_prefill_size": 50},
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


@dataclass
class Sent:
    """A request and its tokens so far."""

    message: TokenizedRequest
    ids: list[int]
    prompt_len: int


class Traffic:
    """Requests and turns of sessions that come and go at random, and what each of them must give."""

    def __init__(self, bench: Any, rng: random.Random) -> None:
        self.bench, self.rng = bench, rng
        self.sent: dict[str, Sent] = {}
        self.live: set[str] = set()
        self.sessions: dict[str, list[str]] = {}
        self.num_sessions = self.num_ended = self.num_turns = 0
        self.stems = [[rng.randrange(DRAWN) for _ in range(70)] for _ in range(3)]

    def send(self) -> None:
        rng = self.rng
        if rng.random() < 0.05:
            # The longest prompts there are.
            ids, max_new = rng.choice([([1] * CONTEXT, 0), ([2] * (CONTEXT - 1), 1)])
        else:
            ids = [*rng.choice(self.stems)[: rng.randrange(71)], *self.own_ids()]
            max_new = rng.randrange(30)
        start = rng.choice([-1, -1, -1, 0, len(ids) - 1, rng.randrange(len(ids))])
        self.accept(ids, ids, max_new, return_logprob=start >= 0, logprob_start_len=start)

    def own_ids(self) -> list[int]:
        return [self.rng.randrange(DRAWN) for _ in range(self.rng.randrange(1, 20))]

    def say(self) -> None:
        """A turn of a session: behind the latest, or any; behind one that has not ended by taking its place."""
        rng = self.rng
        if len(self.sessions) < 3:
            self.num_sessions += 1
            name = f"s{self.num_sessions}"
            self.sessions[name] = []
            self.bench.scheduler.accept(OpenSessionRequest(request_id="o", session_id=name, capacity_bytes=10_000))
        name = rng.choice(sorted(self.sessions))
        turns, own = self.sessions[name], self.own_ids()
        params: dict[str, Any] = {"id": name}
        front: list[int] = []
        if turns:
            parent = rng.choice([turns[-1], rng.choice(turns)])
            params |= {"rid": parent, "replace": parent in self.live, "drop_previous_output": rng.random() < 0.3}
            sent = self.sent[parent]
            front = sent.ids[: sent.prompt_len] if params["drop_previous_output"] else sent.ids
            params["offset"] = rng.choice([70, rng.randrange(1, 70)])
            front = front[: params["offset"]]
            if params["replace"]:
                self.live.discard(parent)
                turns[:] = [turn for turn in turns if not self.follows(turn, parent)]
        turns.append(self.accept([*front, *own], own, rng.randrange(30), session=SessionTurn(**params)))
        self.num_turns += 1

    def follows(self, turn: str, other: str) -> bool:
        """Whether a turn goes on from another; then it lives no longer, as the other has not ended."""
        session = self.sent[turn].message.session
        assert session is not None
        if session.rid is None or session.rid == other:
            return session.rid == other
        return self.follows(session.rid, other)

    def accept(self, prompt: list[int], own: list[int], max_new: int, **options: Any) -> str:
        rng = self.rng
        message = TokenizedRequest(
            rid=f"r{len(self.sent)}",
            input_ids=own,
            sampling=SamplingParams(max_new_tokens=max_new, temperature=0.0),
            priority=rng.choice([0, 0, 1, 40, MAX_PRIORITY, -MAX_PRIORITY]),
            extra_key=rng.choice([None, None, "a"]),
            **options,
        )
        self.sent[message.rid] = Sent(message, list(prompt), len(prompt))
        self.live.add(message.rid)
        self.take(self.bench.scheduler.accept(message))
        return message.rid

    def close(self) -> None:
        if self.sessions:
            name = self.rng.choice(sorted(self.sessions))
            del self.sessions[name]
            self.bench.scheduler.accept(CloseSessionRequest(request_id="c", session_id=name))

    def abort(self) -> None:
        if self.live:
            rid = self.rng.choice(sorted(self.live))
            self.live.remove(rid)
            self.bench.scheduler.accept(AbortRequest(request_id="x", rid=rid))

    def pause(self) -> None:
        """Pause, let something happen meanwhile, and go on."""
        mode: PauseMode = self.rng.choice(["retract", "in_place", "abort"])
        outputs = self.bench.scheduler.accept(PauseRequest(request_id="p", mode=mode))
        self.take([output for output in outputs if mode != "abort" or not is_abort(output)])
        if mode == "abort":
            self.live.clear()
        self.abort()
        self.send()
        self.step()
        self.bench.scheduler.accept(ContinueRequest(request_id="p"))

    def step(self) -> None:
        self.take(self.bench.scheduler.step())

    def take(self, outputs: list[Any]) -> None:
        for output in outputs:
            if isinstance(output, TokenDelta) and output.rid in self.live:
                self.check(output)

    def check(self, delta: TokenDelta) -> None:
        sent = self.sent[delta.rid]
        message, ids = sent.message, sent.ids
        if delta.prompt_ids is not None:
            assert delta.prompt_ids == ids
        if delta.input_logprobs is not None:
            places = range(message.logprob_start_len, len(ids))
            assert delta.input_logprobs == [logprob_of(ids[:at], ids[at]) if at else None for at in places]
        for token in delta.new_ids:
            assert token == next_token(ids, DRAWN), f"{delta.rid} after {len(ids)} tokens"
            ids.append(token)
        if delta.finish is not None:
            assert delta.finish.type == "length"
            max_new = message.sampling.max_new_tokens
            assert max_new is not None
            assert len(ids) == min(sent.prompt_len + max_new, CONTEXT)
            self.live.remove(delta.rid)
            self.num_ended += 1


def is_abort(output: Any) -> bool:
    return isinstance(output, TokenDelta) and output.finish is not None and output.finish.type == "abort"


def run(make_bench: Any, settings: dict[str, Any], *, seed: int, num_steps: int) -> dict[str, Any]:
    rng = random.Random(seed)
    bench = make_bench(
        **{
            "num_slots": 256,
            "max_running": 6,
            "context": CONTEXT,
            "drawn": DRAWN,
            "schedule_conservativeness": 0.2,
            **settings,
        }
    )
    traffic = Traffic(bench, rng)
    pools = bench.scheduler._pools
    for count in range(num_steps):
        if len(traffic.live) < 12 and rng.random() < 0.35:
            rng.choice([traffic.send, traffic.send, traffic.say])()
        for act, probability in ((traffic.abort, 0.03), (traffic.close, 0.01), (traffic.pause, 0.005)):
            if rng.random() < probability:
                act()
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
    assert traffic.num_turns > num_steps // 80
    return {**bench.scheduler.stats(), "copies": [(b.stores, b.loads) for b in bench.executor.batches]}


@pytest.mark.parametrize("name", CONFIGS)
def test_random_steps_lose_no_slot_and_change_no_text(make_bench, name):
    stats = run(make_bench, CONFIGS[name], seed=1, num_steps=400)
    assert stats["num_retracted_total"] > 0
    page_size = CONFIGS[name].get("cache", {}).get("page_size", 1)
    if "cached" not in CONFIGS[name] and page_size <= 16:
        assert stats["cached_tokens_total"] > 0
    if "host_slots" in CONFIGS[name]:
        assert any(stores is not None for stores, _ in stats["copies"])
        assert any(loads is not None for _, loads in stats["copies"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 4))
@pytest.mark.parametrize("name", CONFIGS)
def test_a_hundred_thousand_random_steps(make_bench, name, seed):
    run(make_bench, CONFIGS[name], seed=seed, num_steps=6000)
