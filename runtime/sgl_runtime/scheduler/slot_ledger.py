"""SlotLedger: how running Reqs take, share and give back slots."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import IntArray, SlotCopies
from sgl_runtime.cache.cache_pools import CachePools
from sgl_runtime.cache.prefix_cache import PrefixMatch, PrefixPlace
from sgl_runtime.cache.slot_allocator import whole_pages
from sgl_runtime.scheduler.req import Req


@dataclass(frozen=True)
class SlotNeed:
    """Slots that a pass takes, by request.

    Attributes:
        rows: Their rows.
        ends: Positions that are computed once it is over.
        missing: Slots, of whole pages, that their rows lack for it.
    """

    rows: NDArray[np.int64]
    ends: NDArray[np.int64]
    missing: NDArray[np.int64]


class SlotLedger:
    """The only place where a Req's row, slots and lock change hands.

    A request that is admitted puts the tokens that the coming pass computes of it into the prefix cache at once, so
    that requests planned for the same pass find them: a pass writes the keys and values of all its new tokens before
    any of them is attended.  This rests on one promise of the scheduler: a pass that was planned is launched before
    anything else happens to its requests.

    The device does passes in the order of their launch.  So slots are free on the host as soon as nobody on the host
    needs them, though a pass that was launched may still read and write them: whoever gets them next writes them in a
    later pass.

    Args:
        pools: Allocator, rows and prefix cache.
    """

    def __init__(self, pools: CachePools) -> None:
        self.pools = pools
        # By row: from which position on the cache's slots take the place of the request's own once a pass is launched.
        self._replacements: dict[int, tuple[Req, int, IntArray]] = {}
        self._prompt_lens = np.zeros(pools.rows.num_rows, dtype=np.int32)

    def match(self, req: Req) -> PrefixMatch:
        """The longest cached prefix that the request may use."""
        return self.pools.cache.match(req.tokens.view(0, req.match_limit), extra_key=req.message.extra_key)

    def find(self, req: Req) -> PrefixPlace:
        """Where `match` would end; counts as no use of the prefix, and is fast when asked again."""
        cache, extra_key = self.pools.cache, req.message.extra_key
        if req.place is None or not cache.is_current(req.place, extra_key=extra_key):
            req.place = cache.find(req.tokens.view(0, req.match_limit), extra_key=extra_key, since=req.place)
        return req.place

    def admission_cost(self, match: PrefixMatch, *, num_new: int) -> int:
        """Slots that `admit` takes from the pool, in whole pages."""
        return whole_pages(num_new, self.pools.page_size) + match.num_on_host

    def admit(self, req: Req, match: PrefixMatch, *, num_new: int) -> bool:
        """Take a row and slots for the first tokens that are not matched, and let others find these tokens.

        The match's node must be locked by the caller; the lock passes to the request.

        Args:
            req: A request that waits.
            match: Of the request.
            num_new: Tokens behind the match that the coming pass computes.

        Returns:
            False, with nothing changed, when slots are short.
        """
        cache, rows = self.pools.cache, self.pools.rows
        slots = self.pools.allocate(self.admission_cost(match, num_new=num_new))
        if slots is None:
            return False
        if match.num_on_host:
            cache.load(match.node, slots[: match.num_on_host])
        row = rows.take()
        rows.write(row, 0, match.slots)
        rows.write(row, len(match.slots), slots)
        held = len(match.slots) + len(slots)
        rows.num_held[row], rows.num_private[row] = held, held - match.length
        self._prompt_lens[row] = req.prompt_len
        req.start_running(row=row, node=match.node, num_matched=match.length)
        self._publish(req, match.length + num_new)
        return True

    def need(self, reqs: Sequence[Req], counts: Sequence[int]) -> SlotNeed:
        """Slots that the next counts[i] positions of each take; asked for before the pass has got any."""
        # Whoever computes again what the cache has holds it twice until then, and the pool may be full of it.
        for req, _, _ in list(self._replacements.values()):
            self._replace(req)
        rows = np.array([req.row for req in reqs], dtype=np.int64)
        ends = np.array([req.num_computed for req in reqs], dtype=np.int64) + np.array(counts, dtype=np.int64)
        page_size = self.pools.page_size
        held_ends = ends if page_size == 1 else -(-ends // page_size) * page_size
        return SlotNeed(rows, ends, np.maximum(held_ends - self.pools.rows.num_held[rows], 0))

    def extend(self, reqs: Sequence[Req], counts: Sequence[int], need: SlotNeed) -> None:
        """Give slots for the next counts[i] positions of each; the caller has made sure that there are enough.

        Pieces of prompts and forced text can be found by others at once, as after `admit`.
        """
        if need.missing.any():
            self._give(need.rows, need.missing)
        in_prompt = need.ends <= self._prompt_lens[need.rows]
        for index in np.flatnonzero(in_prompt | (np.array(counts) > 1)).tolist():
            self._publish(reqs[index], int(need.ends[index]))

    def share(self, req: Req) -> None:
        """Put what is computed into the prefix cache, so that others find it while the request runs.

        Called when the passes that compute it are launched; what lies behind the last whole page stays private, and so
        does all of a request that brings embeddings.
        """
        if not req.is_shareable:
            return
        rows = self.pools.rows
        self._replace(req)
        length = min(req.num_computed, len(req.tokens)) // self.pools.page_size * self.pools.page_size
        if length <= req.num_shared:
            return
        own = rows.read(req.row, req.num_shared, length)
        kept = self._insert(req, own, length)
        if kept.length:
            self._swap(req, req.num_shared, own, kept.slots)
            rows.num_private[req.row] -= int((own == kept.slots).sum())
            self._move_lock(req, kept, length)

    def release(self, req: Req) -> None:
        """Give everything back; what is computed stays in the prefix cache."""
        self.share(req)
        rows = self.pools.rows
        self.pools.allocator.free(rows.read(req.row, req.num_shared, int(rows.num_held[req.row])))
        self.pools.cache.unlock(req.node)
        rows.give_back(req.row)

    def take_copies(self) -> tuple[SlotCopies | None, SlotCopies | None]:
        """The `stores` and `loads` of the batch that is being planned; asked for once all its slots are given."""
        return self.pools.cache.take_copies()

    def _give(self, rows: NDArray[np.int64], missing: NDArray[np.int64]) -> None:
        total = int(missing.sum())
        slots = self.pools.allocate(total)
        assert slots is not None, f"no {total} slots for a pass over {len(rows)} requests"
        table = self.pools.rows
        if total == len(rows) and self.pools.page_size == 1 and (missing == 1).all():
            table.slots[rows, table.num_held[rows]] = slots
        else:
            columns = np.arange(total) + np.repeat(table.num_held[rows] - (np.cumsum(missing) - missing), missing)
            table.slots[np.repeat(rows, missing), columns] = slots
        table.num_held[rows] += missing
        table.num_private[rows] += missing

    def _publish(self, req: Req, length: int) -> None:
        """Put tokens into the prefix cache that the coming pass will compute; the request holds them by its lock.

        Tokens that the cache has, but that the request may not take from it, get slots of its own until `share`.
        """
        if not req.is_shareable:
            return
        self._replace(req)
        start = req.num_shared
        length = min(length, len(req.tokens)) // self.pools.page_size * self.pools.page_size
        if length <= start:
            return
        own = self.pools.rows.read(req.row, start, length)
        kept = self._insert(req, own, length)
        if kept.length:
            num_taken = int((own == kept.slots).sum())
            self.pools.rows.num_private[req.row] -= num_taken
            if num_taken < len(own):
                self._replacements[req.row] = (req, start, kept.slots)
            self._move_lock(req, kept, length)

    def _insert(self, req: Req, own: IntArray, length: int) -> PrefixMatch:
        return self.pools.cache.insert(
            req.tokens.view(req.num_shared, length),
            own,
            after=req.node,
            extra_key=req.message.extra_key,
            priority=req.message.priority,
        )

    def _replace(self, req: Req) -> None:
        """Use the cache's slots where the pass before needed others."""
        if req.row in self._replacements:
            _, start, slots = self._replacements.pop(req.row)
            self._swap(req, start, self.pools.rows.read(req.row, start, start + len(slots)), slots)

    def _swap(self, req: Req, start: int, own: IntArray, slots: IntArray) -> None:
        """Give up own slots for those of the cache where they differ."""
        copies = own[own != slots]
        if len(copies):
            self.pools.allocator.free(copies)
            self.pools.rows.num_private[req.row] -= len(copies)
            self.pools.rows.write(req.row, start, slots)
            req.slots_changed = True

    def _move_lock(self, req: Req, match: PrefixMatch, length: int) -> None:
        self.pools.cache.lock(match.node)
        self.pools.cache.unlock(req.node)
        req.node, req.num_shared = match.node, length
