"""BodyThreads: the bounded set of threads that run program functions and callbacks beside the event loop."""

import concurrent.futures
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

MAX_BODY_THREADS = 128


class BodyThreads:
    """Runs functions, at most so many at a time; the rest wait for their turn.

    Threads are daemons and end when nothing waits: none is left idle, and a function that never returns does not keep
    the process alive.

    Args:
        limit: Most threads.
    """

    def __init__(self, limit: int = MAX_BODY_THREADS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._own: set[int] = set()
        self._num_threads = 0

    def start(self, function: Callable[[], T], *, name: str) -> "concurrent.futures.Future[T]":
        """Run a function in a thread, with the caller's context variables.

        Args:
            function: What to run.
            name: Of the thread, for whoever lists threads.
        """
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        context = contextvars.copy_context()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                _settle(future, lambda: context.run(function))

        with self._lock:
            # What one of these threads starts may be what it waits for: it gets a thread beyond the limit.
            if self._num_threads >= self._limit and threading.get_ident() not in self._own:
                self._waiting.append(work)
                return future
            self._num_threads += 1
        threading.Thread(target=self._work, args=(work,), name=name, daemon=True).start()
        return future

    def _work(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._own.add(threading.get_ident())
        todo: Callable[[], None] | None = work
        while todo is not None:
            todo()
            with self._lock:
                todo = self._waiting.popleft() if self._waiting and self._num_threads <= self._limit else None
                if todo is None:
                    self._own.discard(threading.get_ident())
                    self._num_threads -= 1


def _settle(future: "concurrent.futures.Future[Any]", function: Callable[[], Any]) -> None:
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
