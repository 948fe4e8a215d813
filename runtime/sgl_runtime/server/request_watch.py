"""RequestWatch: tells whoever keeps book of requests what becomes of them.

The TokenizerManager reports here; log lines, metrics, dumps and traces are made of it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sgl_runtime.ipc.messages import TextDelta, TokenizedRequest
from sgl_runtime.server.http_call import CurrentCall, HttpCall
from sgl_runtime.server.pending_reply import PendingReply


@dataclass(eq=False)
class WatchedRequest:
    """A request that the scheduler has, and what is known of it.

    Attributes:
        message: As it was sent.
        pending: Its reply so far.
        call: The HTTP request that it came with; None for one without.
        sent_at, first_at, last_at: When it was sent, and when its first and its last tokens came; 0.0 for not yet.
        queue_time: Seconds until it was first scheduled.
    """

    message: TokenizedRequest
    pending: PendingReply
    call: HttpCall | None
    sent_at: float
    first_at: float = 0.0
    last_at: float = 0.0
    queue_time: float = 0.0


class RequestWatcher(Protocol):
    """Keeps book of requests."""

    def received(self, request: WatchedRequest) -> None:
        """A request goes to the scheduler."""

    def ended(self, request: WatchedRequest, *, reason: str) -> None:
        """It has its answer, or nobody waits for it any more.

        Args:
            request: The request.
            reason: "stop", "length" or "abort", the code of the error that ended it, or "left" when its client did.
        """


class TokenCounter(Protocol):
    """Looks at every delta; called for each token, so it must be quick."""

    def count_first(self, request: WatchedRequest, delta: TextDelta) -> None:
        """The first delta with tokens."""

    def count_next(self, num_tokens: int, seconds: float) -> None:
        """A further one, so many seconds after the one before."""


class RequestWatch:
    """Follows requests from the moment they are sent, and tells the watchers.

    Args:
        watchers: Keep book.
        counter: Counts tokens; None for nobody.
        current: Says which HTTP request runs.
    """

    def __init__(
        self,
        watchers: Sequence[RequestWatcher] = (),
        *,
        counter: TokenCounter | None = None,
        current: CurrentCall | None = None,
    ) -> None:
        self._watchers = watchers
        self._counter = counter
        self._current = current or CurrentCall()
        self._requests: dict[str, WatchedRequest] = {}

    def received(self, pending: PendingReply, message: TokenizedRequest) -> None:
        """A request goes to the scheduler."""
        if not self._watchers:
            return
        request = WatchedRequest(message, pending, self._current.get(), time.monotonic())
        self._requests[message.rid] = request
        for watcher in self._watchers:
            watcher.received(request)

    def progressed(self, delta: TextDelta) -> None:
        """A delta of a request has come."""
        request = self._requests.get(delta.rid)
        if request is None or not delta.new_ids:
            return
        now = time.monotonic()
        if not request.first_at:
            request.first_at, request.queue_time = now, delta.queue_time
            if self._counter is not None:
                self._counter.count_first(request, delta)
        elif self._counter is not None:
            self._counter.count_next(len(delta.new_ids), now - request.last_at)
        request.last_at = now

    def ended(self, rid: str, *, reason: str) -> None:
        """A request has its answer, or nobody waits for it any more."""
        request = self._requests.pop(rid, None)
        if request is not None:
            last = request.pending.last
            if not request.first_at and last is not None:
                # A request for no token has no first one.
                request.queue_time = last.queue_time
            for watcher in self._watchers:
                watcher.ended(request, reason=reason)
