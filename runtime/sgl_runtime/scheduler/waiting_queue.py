"""WaitingQueue: requests that wait for a pass, the most urgent first."""

from bisect import insort
from collections.abc import Iterator

from sgl_runtime.scheduler.req import Req


class WaitingQueue:
    """Orders requests by priority, the larger first, and those of one priority by arrival.

    A request that was retracted stands where its arrival puts it: before all that came later.
    """

    def __init__(self) -> None:
        self._reqs: list[Req] = []

    def __len__(self) -> int:
        return len(self._reqs)

    def __iter__(self) -> Iterator[Req]:
        return iter(self._reqs)

    @property
    def first(self) -> Req:
        """The request whose turn is next; there must be one."""
        return self._reqs[0]

    def add(self, req: Req) -> None:
        """Let a request wait."""
        insort(self._reqs, req, key=Req.turn)

    def take_first(self) -> Req:
        """Remove the request whose turn is next."""
        return self._reqs.pop(0)

    def remove(self, req: Req) -> None:
        """Remove a request that waits."""
        self._reqs.remove(req)
