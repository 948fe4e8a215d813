"""The event loop that runs the nodes of all states, in one background thread of the process."""

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Coroutine, Iterable
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")

FAREWELL_TIMEOUT_S = 2.0


class EventLoopThread:
    """An asyncio loop in a daemon thread, running from construction to `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sgl-event-loop", daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run a coroutine on the loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for what it returns or raises."""
        assert threading.current_thread() is not self._thread, "the event loop must not wait for itself"
        return self.start(coroutine).result()

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

    A forked child gets one of its own: threads do not survive a fork.
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
