"""Departure: that a client has gone away before it had its reply.

The connection tells it at once, so that nobody has to wait for it in a task of its own.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Scope

from sgl_runtime.errors import RequestAbortedError

T = TypeVar("T")

_STATE_KEY = "sgl.departure"


class Departure:
    """Ends what is done for a client that has gone away; one for each HTTP request.

    Attributes:
        has_come: Whether the client has gone away.
    """

    def __init__(self) -> None:
        self.has_come = False
        self._task: asyncio.Task[Any] | None = None

    def tell(self) -> None:
        """The client has gone away."""
        if not self.has_come:
            self.has_come = True
            if self._task is not None:
                self._task.cancel()

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """From now on the running task is cancelled when the client goes away; gives that task.

        Raises:
            RequestAbortedError: the client is gone already; the work will not be done.
        """
        if self.has_come:
            work.close()
            raise _gone()
        task = self._task = asyncio.current_task()
        assert task is not None, "requests are answered in tasks"
        return task

    def end(self) -> None:
        """The work is done."""
        self._task = None


def expect_departure(state: dict[str, Any]) -> None:
    """Put a Departure into the state of an HTTP request."""
    state[_STATE_KEY] = Departure()


def tell_departure(state: dict[str, Any]) -> None:
    """The client of the HTTP request with this state has gone away."""
    state[_STATE_KEY].tell()


async def unless_departed(scope: Scope, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client of an HTTP request goes away first.

    A request that came through no connection has a caller in this process, who cancels it himself.

    Raises:
        RequestAbortedError: the client went away.
    """
    departure: Departure | None = scope.get("state", {}).get(_STATE_KEY)
    if departure is None:
        return await work
    task = departure.begin(work)
    try:
        return await work
    except asyncio.CancelledError:
        if not departure.has_come or task.uncancel() > 0:
            raise
        raise _gone() from None
    finally:
        departure.end()


def _gone() -> RequestAbortedError:
    return RequestAbortedError("the client closed the connection")
