"""LiveRequests: the requests that someone waits for, and the rids that are taken."""

import asyncio
from collections.abc import Iterator

from sgl_runtime.errors import InvalidRequestError, OverloadedError
from sgl_runtime.server.pending_reply import PendingReply
from sgl_runtime.server.submission import Submission


class LiveRequests:
    """Knows for each rid who waits for it.

    Args:
        limit: Most requests at a time; None for no limit.

    Attributes:
        limit: As given.
        idle: Set while there are none.
    """

    def __init__(self, *, limit: int | None) -> None:
        self.limit = limit
        self._live: dict[str, tuple[PendingReply, Submission]] = {}
        self._counted: set[str] = set()
        # Requests that were given up and whose end the scheduler has not confirmed, each with its client's rid.
        self._leaving: dict[str, str] = {}
        # For each client's rid the requests behind it, live or leaving: until they are gone it stays taken.
        self._by_client: dict[str, set[str]] = {}
        self.idle = asyncio.Event()
        self.idle.set()

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[tuple[PendingReply, Submission]]:
        return iter(list(self._live.values()))

    def add(self, submission: Submission) -> None:
        """Take the requests of a call.

        Raises:
            InvalidRequestError: a rid is taken.
            OverloadedError: there are too many requests.
        """
        requests = [pending.request for pending in submission.pendings]
        for request in requests:
            if request.rid in self._live or request.rid in self._leaving or request.client_rid in self._by_client:
                raise InvalidRequestError(
                    f"rid {request.client_rid!r} belongs to a request that still runs; give another",
                    param=f"{request.path}rid",
                )
        counted = [pending.request.rid for pending in submission.pendings if not pending.is_probe]
        num_live = len(self._counted) + len(counted)
        if self.limit is not None and num_live > self.limit:
            raise OverloadedError(
                f"{len(self._counted)} requests run or wait, and {len(counted)} more would come; the server takes"
                f" {self.limit} (--max-running-requests and --max-queued-requests together), try again later"
            )
        self._counted.update(counted)
        for pending in submission.pendings:
            self._live[pending.request.rid] = (pending, submission)
            self._by_client.setdefault(pending.request.client_rid, set()).add(pending.request.rid)
        self.idle.clear()

    def get(self, rid: str) -> tuple[PendingReply, Submission] | None:
        """Who waits for a request; None where nobody does."""
        return self._live.get(rid)

    def of_client(self, client_rid: str | None) -> list[PendingReply]:
        """The requests that a client knows by this rid; with None all."""
        rids = self._live if client_rid is None else sorted(self._by_client.get(client_rid, ()))
        return [self._live[rid][0] for rid in rids if rid in self._live]

    def end(self, rid: str) -> None:
        """A request has its answer."""
        pending, _ = self._live.pop(rid)
        self._counted.discard(rid)
        self._forget(rid, pending.request.client_rid)
        self._check_idle()

    def leave(self, submission: Submission) -> list[str]:
        """Nobody waits for a call any more; the rids of those of its requests that the scheduler has to end."""
        left = []
        for pending in submission.pendings:
            request = pending.request
            if self._live.pop(request.rid, None) is None:
                continue
            self._counted.discard(request.rid)
            if pending.is_sent:
                self._leaving[request.rid] = request.client_rid
                left.append(request.rid)
            else:
                self._forget(request.rid, request.client_rid)
        self._check_idle()
        return left

    def confirm_end(self, rid: str) -> None:
        """The scheduler has ended a request."""
        client_rid = self._leaving.pop(rid, None)
        if client_rid is not None:
            self._forget(rid, client_rid)

    def _forget(self, rid: str, client_rid: str) -> None:
        rids = self._by_client[client_rid]
        rids.discard(rid)
        if not rids:
            del self._by_client[client_rid]

    def _check_idle(self) -> None:
        if not self._live:
            self.idle.set()
