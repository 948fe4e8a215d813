"""BatchRun: runs a plain program for many items in a bounded pool of threads."""

import contextlib
import contextvars
import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sgl.errors import reject
from sgl.program_run import ProgramRun
from sgl.program_state import ProgramState
from sgl.state_base import BaseState
from sgl.usage import Usage

MAX_THREADS = 4096
AUTO_TASKS = 1024


@dataclass(frozen=True)
class BatchFailure:
    """What `run_batch(on_error="collect")` gives in the place of an item that failed.

    Attributes:
        index: Place of the item in the batch.
        error: What the body raised, or the `ProgramError` of the state.
        traceback: The error with its causes, as Python prints it.
        state: The state as far as it got.
    """

    index: int
    error: BaseException
    traceback: str
    state: BaseState


def failure_of(index: int, error: BaseException, state: BaseState) -> BatchFailure:
    """The record of a failed item."""
    return BatchFailure(index, error, "".join(traceback.format_exception(error)), state)


@dataclass(frozen=True)
class BatchSettings:
    """How a batch runs.

    Attributes:
        window: Most items that run at a time.
        is_raising: Whether the first failure ends the batch.
    """

    window: int
    is_raising: bool

    @classmethod
    def checked(cls, num_threads: Any, on_error: Any, *, is_async: bool) -> "BatchSettings":
        """Settings of user values.

        Raises:
            ArgumentError: a value is wrong.
        """
        if on_error not in ("raise", "collect"):
            raise reject("on_error", on_error, "'raise' or 'collect'")
        if num_threads == "auto":
            num_threads = AUTO_TASKS if is_async else max(96, 16 * (os.cpu_count() or 1))
        if isinstance(num_threads, bool) or not isinstance(num_threads, int) or not 1 <= num_threads <= MAX_THREADS:
            raise reject("num_threads", num_threads, f"'auto' or an integer from 1 to {MAX_THREADS}")
        return cls(num_threads, on_error == "raise")


@contextlib.contextmanager
def progress_bar(title: str | None, total: int) -> "Generator[Callable[[BaseState], None], None, None]":
    """A function to call with the state of each finished item, and the bar around it; without a title there is no bar.

    The bar shows tokens per second and the share of prompt tokens that were cached.
    """
    if title is None:
        yield lambda _: None
        return
    # Imported here: programs without a progress bar do not pay for loading it.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    rate = TextColumn("{task.fields[rate]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), rate)
    usage, began = Usage(), time.monotonic()
    with Progress(*columns) as progress:
        task = progress.add_task(title, total=total, rate="")

        def advance(state: BaseState) -> None:
            usage.add(state.usage())
            progress.update(task, advance=1, rate=usage.summary(time.monotonic() - began))

        yield advance


class BatchRun:
    """Runs the items of one batch of a plain program.

    Args:
        make_run: Makes the run of an item, by index; called once for each.
        num_items: How many items.
        settings: How it runs.
        title: Title of a progress bar; None for no bar.
    """

    def __init__(
        self, make_run: Callable[[int], ProgramRun], num_items: int, *, settings: BatchSettings, title: str | None
    ) -> None:
        self._make_run = make_run
        self._num_items = num_items
        self._window = min(settings.window, max(num_items, 1))
        self._is_raising = settings.is_raising
        self._title = title
        self._lock = threading.Lock()
        self._running: dict[int, ProgramRun] = {}
        self._first_failure: BatchFailure | None = None
        self._is_stopped = False

    def results(self) -> "Generator[ProgramState | BatchFailure, None, None]":
        """Give what came of the items, in order.

        No item starts more than `num_threads` places ahead of the one that is asked for.  Closing the generator cancels
        what runs.
        """
        futures: deque[Future[ProgramState | BatchFailure | None]] = deque()
        next_index = 0
        with contextlib.ExitStack() as stack:
            pool = ThreadPoolExecutor(self._window, thread_name_prefix="sgl-batch")
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            stack.callback(self._stop)
            advance = stack.enter_context(progress_bar(self._title, self._num_items))
            for index in range(self._num_items):
                while next_index < min(self._num_items, index + self._window):
                    # A copy for each item: a context runs in one thread at a time.
                    work = contextvars.copy_context().run
                    futures.append(pool.submit(work, self._run_item, next_index, advance))
                    next_index += 1
                outcome = futures.popleft().result()
                if self._is_raising and self._first_failure is not None:
                    self._first_failure.error.add_note(f"in item {self._first_failure.index} of the batch")
                    raise self._first_failure.error
                assert outcome is not None, "an item is left out only after a failure"
                yield outcome

    def _run_item(self, index: int, advance: Callable[[BaseState], None]) -> ProgramState | BatchFailure | None:
        """Run one item to its end; None if the batch has stopped."""
        with self._lock:
            if self._is_stopped:
                return None
            run = self._running[index] = self._make_run(index)
        state = run.state()
        error: BaseException | None = None
        try:
            run.run()
            error = state.error()
        except Exception as raised:
            error = raised
        with self._lock:
            del self._running[index]
            advance(state)
        if error is None:
            return state
        failure = failure_of(index, error, state)
        if self._is_raising:
            self._stop(failure)
        return failure

    def _stop(self, failure: BatchFailure | None = None) -> None:
        """Start no more items and cancel those that run."""
        with self._lock:
            if not self._is_stopped:
                self._is_stopped = True
                self._first_failure = failure
            running = list(self._running.values())
        for run in running:
            run.cancel()
