"""Admission: which waiting requests may run, within slots, rows and the tokens of a pass."""

from collections.abc import Sequence

from sgl_runtime.config import SchedulerConfig
from sgl_runtime.scheduler.req import Req
from sgl_runtime.scheduler.slot_ledger import SlotLedger
from sgl_runtime.scheduler.waiting_queue import WaitingQueue

MAX_RESERVE = 4096
"""Slots set aside for the output of one request at most, however long it may grow."""

MIN_PIECE = 64
"""Tokens of a prompt that a pass takes at least when it cannot take all of it, unless it takes nothing else."""

FIRST_RATIO = 0.7
MIN_RATIO = 0.1
LEARNING_RATE = 1 / 32
MARGIN = 1.15
"""How much longer than usual outputs are expected to be."""


class OutputEstimate:
    """How much of what requests may generate they do generate; learned from those that end.

    Args:
        conservativeness: Scales the estimate; above 1 fewer requests run together and fewer are retracted.
    """

    def __init__(self, conservativeness: float) -> None:
        self._conservativeness = conservativeness
        self._usual = FIRST_RATIO
        self.ratio = 0.0
        """Share of its remaining tokens that is set aside for a request."""
        self._move(0.0)

    def note_end(self, req: Req) -> None:
        """Learn from a request, if it has ended of itself."""
        reason = req.finish_reason
        if reason is not None and reason.type != "abort" and req.max_new_tokens > 0:
            self._move(LEARNING_RATE * (req.num_output / req.max_new_tokens - self._usual))

    def note_retraction(self) -> None:
        """Slots ran out: too little was set aside."""
        self._move((1.0 - self._usual) / 4)

    def reserve(self, req: Req) -> int:
        """Slots to set aside for the rest of a request's output."""
        return round(min(req.num_remaining - req.num_drawing, MAX_RESERVE) * self.ratio)

    def _move(self, change: float) -> None:
        self._usual += change
        self.ratio = min(1.0, max(MIN_RATIO, self._usual * MARGIN) * self._conservativeness)


class Admission:
    """Lets requests in, in the order of the queue's policy, until one does not fit.

    Args:
        ledger: Slots and rows.
        config: Limits.
        estimate: How long outputs will be.
        chunked: Whether a prompt may be computed in pieces.
    """

    def __init__(self, ledger: SlotLedger, config: SchedulerConfig, estimate: OutputEstimate, *, chunked: bool) -> None:
        self._ledger = ledger
        self._max_running = config.max_running_requests
        self._estimate = estimate
        self._chunked = chunked
        self._blocked: tuple[int, int] | None = None

    def take(self, waiting: WaitingQueue, running: Sequence[Req], *, budget: int, alone: bool) -> list[tuple[Req, int]]:
        """Requests that move from waiting to running, and how many of their tokens the coming pass computes.

        Args:
            waiting: Who waits.
            running: Who runs.
            budget: Tokens that the pass may still take.
            alone: Whether the pass holds no prompt yet, so that one over the budget may have it for itself.
        """
        pools = self._ledger.pools
        if not waiting or budget <= 0 or not pools.rows.num_free or len(running) >= self._max_running:
            return []
        state = (waiting.num_changes, pools.num_available)
        if self._blocked is not None and self._blocked[0] == state[0] and self._blocked[1] >= state[1]:
            # Nothing came free since the first of the queue did not fit.
            return []
        reserved = sum(max(req.num_uncomputed - 1, 0) + self._estimate.reserve(req) for req in running)
        admitted: list[tuple[Req, int]] = []
        is_short = False
        for req in list(waiting.in_order(self._ledger.find)):
            if budget <= 0 or not pools.rows.num_free or len(running) + len(admitted) >= self._max_running:
                break
            must_fit = not running and not admitted
            count = self._admit(req, budget, reserved, alone=alone and not admitted, must_fit=must_fit)
            if not count:
                is_short = count is None
                break
            waiting.remove(req)
            admitted.append((req, count))
            budget -= count
            reserved += req.num_uncomputed - count + self._estimate.reserve(req)
        waiting.note_admitted(len(admitted))
        self._blocked = (waiting.num_changes, pools.num_available) if is_short and not admitted else None
        return admitted

    def _admit(self, req: Req, budget: int, reserved: int, *, alone: bool, must_fit: bool) -> int | None:
        """Let one request in; how many tokens the pass computes of it, 0 if it has no room, None if slots are short."""
        pools = self._ledger.pools
        match = self._ledger.match(req)
        new = len(req.tokens) - match.length
        count = new
        if new > budget and not (alone and not self._chunked):
            if not self._chunked or (budget < MIN_PIECE and not alone):
                return 0
            count = budget
        # Locked first: what this request matched is not to be evicted for it.
        pools.cache.lock(match.node)
        needed = new + match.num_on_host + (0 if must_fit else reserved + self._estimate.reserve(req))
        if needed > pools.num_available or not self._ledger.admit(req, match, num_new=count):
            pools.cache.unlock(match.node)
            return None
        return count
