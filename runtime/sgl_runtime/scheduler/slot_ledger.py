"""SlotLedger: how running Reqs take, share and give back slots."""

import numpy as np

from sgl_runtime.cache.cache_pools import CachePools
from sgl_runtime.cache.prefix_cache import PrefixMatch
from sgl_runtime.scheduler.req import Req


class SlotLedger:
    """The only place where a Req's row, slots and lock change hands.

    A request that is admitted puts its tokens into the prefix cache at once, so that requests planned for the same pass
    find them: a pass writes the keys and values of all its new tokens before any of them is attended.  This rests on
    one promise of the scheduler: a pass that was planned is run before anything else happens to its requests.

    Args:
        pools: Allocator, rows and prefix cache.
    """

    def __init__(self, pools: CachePools) -> None:
        self.pools = pools

    def match(self, req: Req) -> PrefixMatch:
        """The longest cached prefix that the request may use."""
        return self.pools.cache.match(req.tokens.view(0, req.match_limit))

    def admit(self, req: Req, match: PrefixMatch) -> bool:
        """Take a row and slots for everything not matched, and let others find the tokens.

        The match's node must be locked by the caller; the lock passes to the request.

        Returns:
            False, with nothing changed, when slots are short.
        """
        slots = self.pools.allocate(len(req.tokens) - match.length)
        if slots is None:
            return False
        row = self.pools.rows.take()
        self.pools.rows.write(row, 0, match.slots)
        self.pools.rows.write(row, match.length, slots)
        req.start_running(row=row, node=match.node, num_matched=match.length)
        self._publish(req)
        return True

    def extend(self, reqs: list[Req]) -> None:
        """Slots for the tokens of each that are not computed; the caller has made sure that there are enough."""
        counts = np.array([req.num_uncomputed for req in reqs])
        slots = self.pools.allocate(int(counts.sum()))
        assert slots is not None, f"no {counts.sum()} slots for a pass over {len(reqs)} requests"
        rows = np.repeat([req.row for req in reqs], counts)
        starts = np.cumsum(counts) - counts
        columns = np.arange(len(rows)) + np.repeat([req.num_computed for req in reqs] - starts, counts)
        self.pools.rows.slots[rows, columns] = slots

    def share(self, req: Req) -> None:
        """Put what is computed into the prefix cache, so that others find it while the request runs."""
        cache, rows = self.pools.cache, self.pools.rows
        length = req.num_computed
        ids = req.tokens.view(0, length)
        own = rows.read(req.row, 0, length)
        known = cache.insert(ids, own)
        match = cache.match(ids)
        if match.length < length:
            return
        copies = own[req.num_shared : known]
        copies = copies[copies != match.slots[req.num_shared : known]]
        if len(copies):
            # The cache had these tokens, from another request or because they had to be computed again: keep its slots.
            self.pools.allocator.free(copies)
            rows.write(req.row, 0, match.slots)
            req.slots_changed = True
        self._move_lock(req, match)
        req.num_shared = length

    def release(self, req: Req) -> None:
        """Give everything back; what is computed stays in the prefix cache."""
        self.share(req)
        private = self.pools.rows.read(req.row, req.num_shared, req.num_computed)
        self.pools.allocator.free(private)
        self.pools.cache.unlock(req.node)
        self.pools.rows.give_back(req.row)

    def _publish(self, req: Req) -> None:
        """Put tokens into the prefix cache that the coming pass will compute; the request holds them by its lock.

        Tokens that the cache has, but that the request may not take from it, get slots of its own until `share`.
        """
        cache, length = self.pools.cache, len(req.tokens)
        ids = req.tokens.view(0, length)
        cache.insert(ids, self.pools.rows.read(req.row, 0, length))
        match = cache.match(ids)
        if match.length == length:
            self._move_lock(req, match)

    def _move_lock(self, req: Req, match: PrefixMatch) -> None:
        self.pools.cache.lock(match.node)
        self.pools.cache.unlock(req.node)
        req.node = match.node
