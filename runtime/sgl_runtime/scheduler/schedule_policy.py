"""SchedulePolicy: in which order waiting requests run.

Whatever the policy, requests of higher priority come first, and none is overtaken without end.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Literal

from sgl_runtime.cache.prefix_cache import PrefixMatch
from sgl_runtime.scheduler.req import Req

PolicyName = Literal["lpm", "dfs-weight", "fcfs", "lof", "random"]

MatchPrefix = Callable[[Req], PrefixMatch]
"""The cached prefix of a request."""

MAX_LOOKED_AT = 128
"""Requests whose cached prefixes are looked up; in a longer queue those behind wait in the order of their arrival."""

MAX_OVERTAKEN = 512
"""Later requests that may be admitted before a request until its turn has come whatever its prefix."""


class SchedulePolicy:
    """Orders waiting requests.

    Args:
        name: lpm (longest cached prefix first), dfs-weight (down the tree of prefixes, subtrees with most requests
            first), fcfs (by arrival), lof (longest output first), random.
        seed: Of the random order; None for a fresh one.
    """

    def __init__(self, name: PolicyName, *, seed: int | None = None) -> None:
        self._name = name
        self._random = random.Random(seed)

    def order(self, reqs: Sequence[Req], match: MatchPrefix) -> Sequence[Req]:
        """The requests in the order in which they should run.

        Args:
            reqs: By priority and arrival.
            match: Finds the cached prefix of a request.
        """
        if self._name == "fcfs" or len(reqs) < 2:
            return reqs
        if self._name == "lof":
            return sorted(reqs, key=lambda req: (*_rank(req), -req.max_new_tokens, req.arrival))
        if self._name == "random":
            return sorted(reqs, key=lambda req: (*_rank(req), self._random.random()))
        looked_at = list(islice(reqs, MAX_LOOKED_AT))
        matches = [match(req) for req in looked_at]
        keys = _by_length(matches) if self._name == "lpm" else _by_subtree(matches)
        order = sorted(range(len(looked_at)), key=lambda i: (*_rank(looked_at[i]), keys[i], looked_at[i].arrival))
        return [*(looked_at[i] for i in order), *islice(reqs, MAX_LOOKED_AT, None)]

    def note_admitted(self, reqs: Sequence[Req], admitted: Sequence[Req]) -> None:
        """Count how often those that go on waiting were overtaken.

        Args:
            reqs: Who waits, by priority and arrival.
            admitted: Who was let in.
        """
        if self._name == "fcfs" or not admitted or not reqs:
            return
        newest = max(req.arrival for req in admitted)
        for req in reqs:
            if req.arrival < newest:
                req.num_overtaken += sum(other.arrival > req.arrival for other in admitted)


def _rank(req: Req) -> tuple[int, bool]:
    return -req.message.priority, req.num_overtaken < MAX_OVERTAKEN


def _by_length(matches: Sequence[PrefixMatch]) -> list[Any]:
    return [-match.length for match in matches]


def _by_subtree(matches: Sequence[PrefixMatch]) -> list[Any]:
    """For each match the way down to its node, heavier subtrees before lighter ones, a node before what is below it."""
    paths = [_path(match.node) for match in matches]
    weights = Counter(id(node) for path in paths for node in path)
    first_seen: dict[int, int] = {}
    for path in paths:
        for node in path:
            first_seen.setdefault(id(node), len(first_seen))
    return [[(-weights[id(node)], first_seen[id(node)]) for node in path] for path in paths]


def _path(node: Any) -> list[Any]:
    path = []
    while node is not None and node.parent is not None:
        path.append(node)
        node = node.parent
    return path[::-1]
