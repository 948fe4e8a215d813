"""Submission: the live requests of one call, and the waiting for them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any

from sgl_runtime.server.pending_reply import PendingReply


class Submission:
    """Wakes one waiting task when any of its requests has news.

    Args:
        pendings: The requests, in the order of the call.
        stream: Whether every update is news, or only the end of a request.
    """

    def __init__(self, pendings: Sequence[PendingReply], *, stream: bool) -> None:
        self.pendings = pendings
        self._stream = stream
        self._news: dict[PendingReply, None] = {}
        self._event = asyncio.Event()

    def notify(self, pending: PendingReply) -> None:
        """Say that a request of this call was changed."""
        if not (self._stream or pending.is_finished):
            return
        self._news[pending] = None
        self._event.set()

    async def updates(self) -> AsyncGenerator[PendingReply, None]:
        """Each request whenever it has news, until all are finished.

        Raises:
            SglRuntimeError: a request failed.
        """
        num_open = len(self.pendings)
        while num_open:
            await self._event.wait()
            self._event.clear()
            self._raise_first_error()
            # Taken one by one: while the reader has one request, another may get more news, or its last.
            while self._news:
                pending = next(iter(self._news))
                del self._news[pending]
                num_open -= pending.is_finished
                yield pending
                self._raise_first_error()

    async def finish(self) -> None:
        """Wait until all are finished.

        Raises:
            SglRuntimeError: a request failed; of several, the first of the call.
        """
        for pending in self.pendings:
            while not pending.is_finished:
                await self._event.wait()
                self._event.clear()
                self._raise_first_error()
        self._raise_first_error()

    def _raise_first_error(self) -> None:
        for pending in self.pendings:
            if pending.error is not None:
                raise pending.error


class Submitting:
    """While inside, the requests of a call are with the scheduler.

    Args:
        submission: The call.
        begin: Sends its requests; where it fails, none is left.
        end: Gives up what has not finished.
    """

    def __init__(
        self,
        submission: Submission,
        *,
        begin: Callable[[Submission], Coroutine[Any, Any, None]],
        end: Callable[[Submission], None],
    ) -> None:
        self._submission = submission
        self._begin = begin
        self._end = end

    async def __aenter__(self) -> Submission:
        """Send the requests."""
        await self._begin(self._submission)
        return self._submission

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give up what has not finished."""
        self._end(self._submission)
