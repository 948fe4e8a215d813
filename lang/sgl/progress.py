"""Progress: the one lock of a program run, with wake-ups for threads and for tasks."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType


class Progress:
    """Guards the states and variables of one run and wakes whoever waits for them to change.

    Threads wait on a condition; tasks of any event loop wait on a future of their own loop.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._wakers: list[Callable[[], None]] = []
        self._changing = _Change(self._condition, self._wakers)

    def change(self) -> "AbstractContextManager[None]":
        """Hold the lock; whoever waits looks again afterwards.  May be nested."""
        return self._changing

    def look(self) -> "AbstractContextManager[object]":
        """Hold the lock and wake nobody: to read, or to change what nobody waits for."""
        return self._condition

    def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Block until the predicate, evaluated under the lock, is true."""
        with self._condition:
            self._condition.wait_for(predicate)

    async def wait_for_async(self, predicate: Callable[[], bool]) -> None:
        """The same for a task."""
        loop = asyncio.get_running_loop()
        while True:
            woken = loop.create_future()
            waker = _Waker(loop, woken)
            with self._condition:
                if predicate():
                    return
                self._wakers.append(waker)
            try:
                await woken
            finally:
                with self._condition:
                    if waker in self._wakers:
                        self._wakers.remove(waker)


class _Change(AbstractContextManager[None]):
    """Holds the lock, and wakes at the end; entered for every step of every state, hence no generator."""

    def __init__(self, condition: threading.Condition, wakers: list[Callable[[], None]]) -> None:
        self._condition = condition
        self._wakers = wakers

    def __enter__(self) -> None:
        self._condition.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._condition.notify_all()
        if not self._wakers:
            self._condition.release()
            return
        wakers = self._wakers.copy()
        self._wakers.clear()
        self._condition.release()
        for wake in wakers:
            wake()


class _Waker:
    """Resolves a future from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, woken: "asyncio.Future[None]") -> None:
        self._loop = loop
        self._woken = woken

    def __call__(self) -> None:
        # The loop of a consumer that has gone away may be closed: then nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)
