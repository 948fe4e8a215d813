"""SchedulePolicy: in which order waiting requests run.

Whatever the policy, requests of higher priority come first, and none is overtaken without end.
"""

import random
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

MAX_OVERTAKEN = 128
"""Later requests that may be admitted before a request until its turn has come whatever its prefix, if all that waited
when it came are admitted, too."""

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
        self._num_admitted = 0

    def note_arrival(self, req: Req, *, num_waiting: int) -> None:
        """Set the bound on how long others may go before a request that begins to wait.

        Args:
            req: The request.
            num_waiting: Requests that wait already.
        """
        if req.due is None:
            req.due = self._num_admitted + num_waiting + MAX_OVERTAKEN

    def note_admitted(self, count: int) -> None:
        """Count requests that were let in."""
        self._num_admitted += count

    def order(self, reqs: Sequence[Req], find: FindPrefix) -> Sequence[Req]:
        """The requests in the order in which they should run.

        Args:
            reqs: By priority and arrival.
            find: Finds the cached prefix of a request.
        """
        if self._name == "fcfs" or len(reqs) < 2:
            return reqs
        if self._name == "lof":
            ordered = sorted(reqs, key=lambda req: (-req.message.priority, -req.max_new_tokens, req.arrival))
        elif self._name == "random":
            ordered = sorted(reqs, key=lambda req: (-req.message.priority, self._random.random()))
        else:
            ordered = self._by_prefix(reqs, find)
        first = reqs[0]
        assert first.due is not None, "set when it began to wait"
        if self._num_admitted < first.due:
            return ordered
        # Only one at a time goes before the others: those that share its prefix follow once it is in the cache.
        return [first, *(req for req in ordered if req is not first)]

    def _by_prefix(self, reqs: Sequence[Req], find: FindPrefix) -> list[Req]:
        looked_at = list(islice(reqs, MAX_LOOKED_AT))
        places = [find(req) for req in looked_at]
        keys = _by_length(places) if self._name == "lpm" else _by_subtree(places)
        entries = [(-req.message.priority, key, req.arrival, req) for req, key in zip(looked_at, keys, strict=True)]
        return [*(entry[-1] for entry in sorted(entries)), *islice(reqs, MAX_LOOKED_AT, None)]


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
