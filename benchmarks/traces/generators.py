"""Generators of traces, one for each kind of traffic; seeded."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from traces.trace import TraceRequest


class _Builder:
    """Collects requests; every part and every output gets a seed of its own."""

    def __init__(self, seed: int, num_requests: int) -> None:
        self.random = random.Random(seed)
        self.num_requests = num_requests
        self.requests: list[TraceRequest] = []
        self._next_seed = seed * 1_000_003

    @property
    def is_full(self) -> bool:
        return len(self.requests) >= self.num_requests

    def part(self, low: int, high: int) -> tuple[int, int]:
        self._next_seed += 1
        return self._next_seed, self.random.randint(low, high)

    def add(self, after: int, delay_s: float, parts: list[tuple[int, int]], output_len: int) -> int:
        """The place of the new request."""
        self._next_seed += 1
        self.requests.append(TraceRequest(after, delay_s, tuple(parts), output_len, self._next_seed))
        return len(self.requests) - 1


def chat(seed: int, num_requests: int, rate: float) -> list[TraceRequest]:
    """Conversations of one to eight turns below a few system prompts, some far more popular than others."""
    build = _Builder(seed, num_requests)
    systems = [build.part(200, 1500) for _ in range(12)]
    weights = [1 / (rank + 1) for rank in range(len(systems))]
    now = 0.0
    while not build.is_full:
        now += build.random.expovariate(rate / 4.5)
        parts = [*build.random.choices(systems, weights), build.part(20, 200)]
        place = build.add(-1, now, parts, build.random.randint(20, 300))
        for _ in range(build.random.randint(0, 7)):
            delay = build.random.expovariate(1 / 5)
            place = build.add(place, delay, [build.part(20, 200)], build.random.randint(20, 300))
    return build.requests[:num_requests]


def agents(seed: int, num_requests: int, rate: float) -> list[TraceRequest]:
    """Tasks that call tools: short outputs, and what the tool said behind each of them."""
    build = _Builder(seed, num_requests)
    templates = [build.part(1500, 4000) for _ in range(5)]
    now = 0.0
    while not build.is_full:
        now += build.random.expovariate(rate / 7)
        parts = [build.random.choice(templates), build.part(30, 300)]
        place = build.add(-1, now, parts, build.random.randint(30, 150))
        for _ in range(build.random.randint(2, 10)):
            delay = build.random.expovariate(1 / 0.5)
            place = build.add(place, delay, [build.part(50, 800)], build.random.randint(30, 150))
    return build.requests[:num_requests]


def few_shot(seed: int, num_requests: int, rate: float) -> list[TraceRequest]:
    """Questions behind the examples of their subject, the subjects mixed; short outputs."""
    build = _Builder(seed, num_requests)
    subjects = [build.part(800, 2500) for _ in range(max(1, num_requests // 100))]
    now = 0.0
    while not build.is_full:
        now += build.random.expovariate(rate)
        build.add(-1, now, [build.random.choice(subjects), build.part(30, 150)], build.random.randint(1, 5))
    return build.requests


def tree_of_thought(seed: int, num_requests: int, rate: float) -> list[TraceRequest]:
    """Problems whose solution is searched for: three thoughts from each thought that is followed, three levels deep."""
    build = _Builder(seed, num_requests)
    instructions = build.part(400, 800)
    now = 0.0
    while not build.is_full:
        now += build.random.expovariate(rate / 30)
        problem = [instructions, build.part(100, 400)]
        level = [build.add(-1, now, problem, build.random.randint(40, 120)) for _ in range(3)]
        for _ in range(2):
            ask = build.part(20, 40)
            level = [build.add(place, 0.0, [ask], build.random.randint(40, 120)) for place in level for _ in range(3)]
    return build.requests[:num_requests]


@dataclass(frozen=True)
class Traffic:
    """A kind of traffic, and a load under which the order of requests matters.

    Attributes:
        generate: Takes a seed, the number of requests, and how many come in a second.
        rate: Requests a second, those included that go on from others.
        slots: Tokens that the device holds.
    """

    generate: Callable[[int, int, float], list[TraceRequest]]
    rate: float
    slots: int


TRAFFIC = {
    "chat": Traffic(chat, 30.0, 400_000),
    "agents": Traffic(agents, 20.0, 400_000),
    "few-shot": Traffic(few_shot, 400.0, 40_000),
    "tree-of-thought": Traffic(tree_of_thought, 120.0, 60_000),
}
