"""RadixCache against a plain set of prefixes."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sgl_runtime.cache.radix_cache import RadixCache
from sgl_runtime.cache.slot_allocator import SlotAllocator

SEQUENCES = st.lists(st.integers(0, 2), min_size=1, max_size=12)


class RadixCacheMachine(RuleBasedStateMachine):
    """The model maps every kept prefix to the slot of its last token."""

    @initialize()
    def start(self) -> None:
        self.cache = RadixCache()
        self.allocator = SlotAllocator(num_slots=200)
        self.model: dict[tuple[int, ...], int] = {}
        self.locks: list[tuple[object, tuple[int, ...]]] = []

    def longest(self, ids: list[int]) -> int:
        return max(n for n in range(len(ids) + 1) if n == 0 or tuple(ids[:n]) in self.model)

    def locked(self) -> set[tuple[int, ...]]:
        return {ids[:n] for _, ids in self.locks for n in range(1, len(ids) + 1)}

    @rule(ids=SEQUENCES)
    def insert(self, ids: list[int]) -> None:
        if self.allocator.num_free < len(ids):
            return
        slots = self.allocator.allocate(len(ids))
        known = self.cache.insert(np.array(ids), slots)
        assert known == self.longest(ids)
        self.allocator.free(slots[:known])
        for n in range(known, len(ids)):
            self.model[tuple(ids[: n + 1])] = int(slots[n])

    @rule(ids=SEQUENCES)
    def match(self, ids: list[int]) -> None:
        match = self.cache.match(np.array(ids))
        assert match.length == self.longest(ids)
        assert match.slots.tolist() == [self.model[tuple(ids[: n + 1])] for n in range(match.length)]

    @rule(ids=SEQUENCES)
    def lock(self, ids: list[int]) -> None:
        match = self.cache.match(np.array(ids))
        self.cache.lock(match.node)
        self.locks.append((match.node, tuple(ids[: match.length])))

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def unlock(self, data: st.DataObject) -> None:
        node, _ = self.locks.pop(data.draw(st.integers(0, len(self.locks) - 1)))
        self.cache.unlock(node)

    @rule(count=st.integers(0, 30))
    def evict(self, count: int) -> None:
        before = self.cache.num_evictable
        freed = self.cache.evict(count)
        assert len(freed) >= min(count, before)
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
        assert sorted(slots) == list(range(200)), "a slot is lost or owned twice"


RadixCacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRadixCache = RadixCacheMachine.TestCase
