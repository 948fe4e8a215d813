"""SchedulePolicy: in which order waiting requests run.

Whatever the policy, requests of higher priority come first, and none is overtaken without end.
"""

import random
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Literal

from sgl_runtime.cache.prefix_cache import PrefixPlace
from sgl_runtime.scheduler.req import Req

PolicyName = Literal["lpm", "dfs-weight", "fcfs", "lof", "random"]

FindPrefix = Callable[[Req], PrefixPlace]
"""How far a request leads into the prefix cache."""

MAX_LOOKED_AT = 512
"""Requests whose cached prefixes are looked up; in a longer queue those behind wait in the order of their arrival."""

MAX_OVERTAKEN = 512
"""Later requests that may be admitted before a request until its turn has come whatever its prefix."""

_LAST = (0, 0)


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

    def order(self, reqs: Sequence[Req], find: FindPrefix) -> Sequence[Req]:
        """The requests in the order in which they should run.

        Args:
            reqs: By priority and arrival.
            find: Finds the cached prefix of a request.
        """
        if self._name == "fcfs" or len(reqs) < 2:
            return reqs
        if self._name == "lof":
            return sorted(reqs, key=lambda req: (*_rank(req), -req.max_new_tokens, req.arrival))
        if self._name == "random":
            return sorted(reqs, key=lambda req: (*_rank(req), self._random.random()))
        looked_at = list(islice(reqs, MAX_LOOKED_AT))
        places = [find(req) for req in looked_at]
        keys = _by_length(places) if self._name == "lpm" else _by_subtree(places)
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
        arrivals = sorted(req.arrival for req in admitted)
        for req in reqs:
            if req.arrival < arrivals[-1]:
                req.num_overtaken += len(arrivals) - bisect(arrivals, req.arrival)


def _rank(req: Req) -> tuple[int, bool]:
    return -req.message.priority, req.num_overtaken < MAX_OVERTAKEN


def _by_length(places: Sequence[PrefixPlace]) -> list[Any]:
    return [-place.length for place in places]


def _by_subtree(places: Sequence[PrefixPlace]) -> list[Any]:
    """For each place the way down to its node, heavier subtrees before lighter ones.

    A node comes after what is below it: whoever goes on from little would drive out what others go on from.
    """
    paths = [_path(place.node) for place in places]
    weights = Counter(id(node) for path in paths for node in path)
    first_seen: dict[int, int] = {}
    for path in paths:
        for node in path:
            first_seen.setdefault(id(node), len(first_seen))
    return [[*((-weights[id(node)], first_seen[id(node)]) for node in path), _LAST] for path in paths]


def _path(node: Any) -> list[Any]:
    path = []
    while node is not None and node.parent is not None:
        path.append(node)
        node = node.parent
    return path[::-1]
