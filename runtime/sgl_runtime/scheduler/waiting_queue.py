"""WaitingQueue: requests that wait for a pass."""

from bisect import insort
from collections.abc import Iterator, Sequence

from sgl_runtime.scheduler.req import Req
from sgl_runtime.scheduler.schedule_policy import MatchPrefix, SchedulePolicy


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
        insort(self._reqs, req, key=Req.turn)
        self.num_changes += 1

    def remove(self, req: Req) -> None:
        """Remove a request that waits."""
        if self._reqs[0] is req:
            self._reqs.pop(0)
        else:
            self._reqs.remove(req)
        self.num_changes += 1

    def remove_done(self) -> None:
        """Remove requests that ended while they waited."""
        done = [req for req in self._reqs if req.is_done]
        for req in done:
            self.remove(req)

    def in_order(self, match: MatchPrefix) -> Sequence[Req]:
        """The requests in the order in which they should run.

        Args:
            match: Finds the cached prefix of a request.
        """
        return self._policy.order(self._reqs, match)

    def note_admitted(self, admitted: Sequence[Req]) -> None:
        """Tell the policy who was let in, before requests that may have come earlier."""
        self._policy.note_admitted(self._reqs, admitted)
