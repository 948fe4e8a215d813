"""WaitingQueue: requests that wait for a pass."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from sgl_runtime.scheduler.req import TURN, Req
from sgl_runtime.scheduler.schedule_policy import FindPrefix, SchedulePolicy


class WaitingQueue:
    """Keeps requests by priority, the larger first, and those of one priority by arrival; a policy may reorder them.

    A request that was retracted stands where its arrival puts it: before all that came later.

    Args:
        policy: Orders the requests whose turn it may be.
    """

    def __init__(self, policy: SchedulePolicy) -> None:
        self._policy = policy
        self._reqs: list[Req] = []
        self.num_changes = 0
        """Grows whenever a request is added or removed."""

    def __len__(self) -> int:
        return len(self._reqs)

    def __iter__(self) -> Iterator[Req]:
        return iter(self._reqs)

    @property
    def most_urgent(self) -> Req:
        """The request of the highest priority that came first; there must be one."""
        return self._reqs[0]

    def add(self, req: Req) -> None:
        """Let a request wait."""
        self._policy.note_arrival(req, num_waiting=len(self._reqs))
        insort(self._reqs, req, key=TURN)
        self.num_changes += 1

    def remove(self, req: Req) -> None:
        """Remove a request that waits."""
        place = self._place(req)
        assert place is not None, f"{req.rid} does not wait"
        del self._reqs[place]
        self.num_changes += 1

    def remove_done(self, reqs: Sequence[Req]) -> None:
        """Remove those of some requests that ended while they waited."""
        for req in reqs:
            if req.is_done and self._place(req) is not None:
                self.remove(req)

    def _place(self, req: Req) -> int | None:
        """Where a request stands; None if it does not wait."""
        place = bisect_left(self._reqs, req.turn, key=TURN)
        return place if place < len(self._reqs) and self._reqs[place] is req else None

    def in_order(self, find: FindPrefix) -> Sequence[Req]:
        """The requests in the order in which they should run.

        Args:
            find: Finds the cached prefix of a request.
        """
        return self._policy.order(self._reqs, find)

    def note_admitted(self, count: int) -> None:
        """Tell the policy how many were let in."""
        self._policy.note_admitted(count)
