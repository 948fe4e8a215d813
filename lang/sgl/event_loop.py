"""The event loop that runs the nodes of all states, in one background thread of the process."""

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from functools import lru_cache
from typing import Any, TypeVar

from sgl.body_threads import BodyThreads
from sgl.errors import SglError

T = TypeVar("T")

FAREWELL_TIMEOUT_S = 2.0


class EventLoopThread:
    """An asyncio loop in a daemon thread, running from construction to `close`.

    Attributes:
        bodies: Threads for what may block: functions of programs, and callbacks of users.
    """

    def __init__(self) -> None:
        self.bodies = BodyThreads()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sgl-event-loop", daemon=True)
        self._thread.start()
        # A loop holds its tasks weakly; those that nobody waits for would be collected half-way.
        self._held: set[Any] = set()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on the loop."""
        return threading.current_thread() is self._thread

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run a coroutine on the loop, in the caller's context; cancelling the future cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self.hold(future)
        return future

    def hold(self, future: "concurrent.futures.Future[Any] | asyncio.Future[Any]") -> None:
        """Keep a future, or a task of any loop, until it is done."""
        self._held.add(future)
        future.add_done_callback(self._held.discard)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for what it returns or raises.

        Raises:
            SglError: the caller runs on the loop, which cannot wait for itself.
        """
        if self.is_current_thread:
            coroutine.close()
            raise SglError("an async program cannot block the loop that it runs on; await the async form of this call")
        future = self.start(coroutine)
        try:
            return future.result()
        except BaseException:
            # An interrupt: what nobody waits for any more ends.
            future.cancel()
            raise

    def call_soon(self, function: Callable[[], Any]) -> None:
        """Call a function on the loop.  Takes no lock of ours, so the garbage collector may be the caller."""
        # At the end of the process the loop may be closed before the last states are collected.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Cancel what runs and end the thread."""
        if self._loop.is_closed():
            return
        self.start(_cancel_others()).result(timeout=10.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10.0)
        self._loop.close()


def event_loop_thread() -> EventLoopThread:
    """The loop of this process, started on first use and closed at exit.

    A forked child gets one of its own: threads do not survive a fork.  Memoised because a thread of its own for every
    backend or run would be as many threads as states; nothing of a program is kept in it.
    """
    return _event_loop_thread_of(os.getpid())


@lru_cache(maxsize=1)
def _event_loop_thread_of(pid: int) -> EventLoopThread:
    thread = EventLoopThread()
    atexit.register(thread.close)
    return thread


async def _cancel_others() -> None:
    await _cancel(asyncio.all_tasks() - {asyncio.current_task()})
    # Cancelled requests tell their servers; what has not got through by then is dropped.
    farewells = asyncio.all_tasks() - {asyncio.current_task()}
    if farewells:
        _, late = await asyncio.wait(farewells, timeout=FAREWELL_TIMEOUT_S)
        await _cancel(late)


async def _cancel(tasks: "Iterable[asyncio.Task[Any] | None]") -> None:
    cancelled = [task for task in tasks if task is not None]
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)
