"""RadixCache against a plain set of prefixes, and SlotAllocator against a set of slots."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sgl_runtime.cache.prefix_cache import PrefixPlace
from sgl_runtime.cache.radix_cache import RadixCache
from sgl_runtime.cache.slot_allocator import SlotAllocator, whole_pages

SEQUENCES = st.lists(st.integers(0, 2), min_size=1, max_size=12)
EXTRA_KEYS = st.sampled_from([None, "a"])
POLICIES = st.sampled_from(["lru", "lfu", "fifo", "priority"])

Prefix = tuple[str | None, tuple[int, ...]]


class RadixCacheMachine(RuleBasedStateMachine):
    """The model maps every kept prefix to the slot of its last token.

    A sequence stands for as many repetitions of its tokens as a page holds, so that pages of any size are shared as
    often as single tokens are, or cut off by one, so that its last page is not whole.
    """

    page_size = 1

    @initialize(policy=POLICIES)
    def start(self, policy: str) -> None:
        self.num_slots = 200 * self.page_size
        self.cache = RadixCache(page_size=self.page_size, policy=policy)
        self.allocator = SlotAllocator(num_slots=self.num_slots, page_size=self.page_size)
        self.model: dict[Prefix, int] = {}
        self.places: dict[Prefix, PrefixPlace] = {}
        self.locks: list[tuple[object, Prefix]] = []

    def expand(self, ids: list[int]) -> tuple[int, ...]:
        return tuple(token for token in ids for _ in range(self.page_size))

    def longest(self, key: str | None, ids: tuple[int, ...]) -> int:
        lengths = range(self.page_size, len(ids) + 1, self.page_size)
        return max((n for n in lengths if (key, ids[:n]) in self.model), default=0)

    def locked(self) -> set[Prefix]:
        return {(key, ids[:n]) for _, (key, ids) in self.locks for n in range(1, len(ids) + 1)}

    @rule(ids=SEQUENCES, key=EXTRA_KEYS, priority=st.integers(0, 2), from_lock=st.booleans())
    def insert(self, ids: list[int], key: str | None, priority: int, from_lock: bool) -> None:
        tokens = self.expand(ids)
        if self.allocator.num_free < len(tokens):
            return
        after, before = self.cache.top, ()
        if from_lock and self.locks:
            after, (key, before) = self.locks[-1]
        known = self.longest(key, before + tokens) - len(before)
        slots = self.allocator.allocate(len(tokens))
        kept = self.cache.insert(np.array(tokens), slots, after=after, extra_key=key, priority=priority)
        assert kept.slots[:known].tolist() == [self.model[key, before + tokens[: n + 1]] for n in range(known)], (
            "what was there keeps its slots"
        )
        assert kept.slots[known:].tolist() == slots[known:].tolist()
        self.allocator.free(slots[:known])
        for n in range(known, len(tokens)):
            self.model[key, before + tokens[: n + 1]] = int(slots[n])

    @rule(ids=SEQUENCES, key=EXTRA_KEYS, is_cut=st.booleans())
    def match(self, ids: list[int], key: str | None, is_cut: bool) -> None:
        tokens = self.expand(ids)[: -1 if is_cut else None]
        # A place that was found before may have been cut, grown or dropped since.
        since = self.places.get((key, tokens))
        if since is None or not self.cache.is_current(since, extra_key=key):
            self.places[key, tokens] = self.cache.find(np.array(tokens), extra_key=key, since=since)
        assert self.places[key, tokens].length == self.longest(key, tokens)
        match = self.cache.match(np.array(tokens), extra_key=key)
        assert match.length == self.longest(key, tokens)
        assert match.slots.tolist() == [self.model[key, tokens[: n + 1]] for n in range(match.length)]

    @rule(ids=SEQUENCES, key=EXTRA_KEYS)
    def lock(self, ids: list[int], key: str | None) -> None:
        tokens = self.expand(ids)
        match = self.cache.match(np.array(tokens), extra_key=key)
        self.cache.lock(match.node)
        self.locks.append((match.node, (key, tokens[: match.length])))

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def unlock(self, data: st.DataObject) -> None:
        node, _ = self.locks.pop(data.draw(st.integers(0, len(self.locks) - 1)))
        self.cache.unlock(node)

    @rule(count=st.integers(0, 30))
    def evict(self, count: int) -> None:
        before = self.cache.num_evictable
        freed = self.cache.evict(count)
        assert len(freed) == min(whole_pages(count, self.page_size), before)
        gone = set(freed.tolist())
        self.model = {ids: slot for ids, slot in self.model.items() if slot not in gone}
        assert self.locked() <= set(self.model), "a locked prefix was evicted"
        self.allocator.free(freed)

    @precondition(lambda self: not self.locks)
    @rule()
    def clear(self) -> None:
        self.allocator.free(self.cache.clear())
        self.model = {}

    @invariant()
    def accounts(self) -> None:
        self.cache.check()
        assert self.cache.num_cached == len(self.model)
        assert self.cache.num_evictable == len(set(self.model) - self.locked())
        slots = self.cache.all_slots().tolist() + self.allocator.free_slots().tolist()
        assert sorted(slots) == list(range(self.num_slots)), "a slot is lost or owned twice"


class PagedRadixCacheMachine(RadixCacheMachine):
    page_size = 16


@pytest.mark.parametrize(("machine", "examples"), [(RadixCacheMachine, 60), (PagedRadixCacheMachine, 30)])
def test_radix_cache_equals_a_set_of_prefixes(machine, examples):
    limits = settings(max_examples=examples, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(machine, settings=limits)


@settings(max_examples=100, deadline=None)
@given(
    page_size=st.sampled_from([1, 2, 16, 256]), steps=st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=30)
)
def test_allocator_hands_out_whole_pages_once(page_size, steps):
    allocator = SlotAllocator(num_slots=20 * page_size, page_size=page_size)
    held: list[np.ndarray] = []
    for takes, number in steps:
        if takes and number * page_size <= allocator.num_free:
            slots = allocator.allocate(number * page_size)
            pages = slots.reshape(-1, page_size)
            assert (pages == pages[:, :1] + np.arange(page_size)).all()
            assert (pages[:, 0] % page_size == 0).all()
            held.append(slots)
        elif held:
            allocator.free(held.pop(number % len(held)))
        everything = np.concatenate([*held, allocator.free_slots()])
        assert sorted(everything.tolist()) == list(range(20 * page_size))
