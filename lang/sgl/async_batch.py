"""AsyncBatchRun: runs a program for many items as tasks of one event loop."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from sgl.batch import BatchFailure, BatchSettings, failure_of, progress_bar
from sgl.event_loop import EventLoopThread
from sgl.program_run import ProgramRun
from sgl.state_base import BaseState

Outcome = BaseState | BatchFailure


class AsyncBatchRun:
    """Runs the items of one batch.

    Args:
        make_run: Makes the run of an item, by index; called once for each.
        num_items: How many items.
        settings: How it runs.
        view: Makes the state that is given to the caller.
        title: Title of a progress bar; None for no bar.
    """

    def __init__(
        self,
        make_run: Callable[[int], ProgramRun],
        num_items: int,
        *,
        settings: BatchSettings,
        view: Callable[[ProgramRun], BaseState],
        title: str | None,
    ) -> None:
        self._make_run = make_run
        self._num_items = num_items
        self._settings = settings
        self._view = view
        self._title = title
        self._first_failure: BatchFailure | None = None

    async def results(self) -> AsyncGenerator[Outcome, None]:
        """Give what came of the items, in order.

        No item starts more places ahead of the one that is asked for than the window has.  Closing the generator
        cancels what runs.
        """
        tasks: deque[asyncio.Task[Outcome]] = deque()
        next_index = 0
        stop = asyncio.Event()
        try:
            with progress_bar(self._title, self._num_items) as advance:
                for index in range(self._num_items):
                    while next_index < min(self._num_items, index + self._settings.window):
                        tasks.append(asyncio.ensure_future(self._run_item(next_index, stop, advance)))
                        next_index += 1
                    yield await self._next(tasks, stop)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def results_from(self, loop: EventLoopThread) -> "Generator[Outcome, None, None]":
        """The same for a thread; the items run on the loop.  Closing the generator cancels what runs."""
        results = self.results()

        async def step() -> Outcome | None:
            return await anext(results, None)

        try:
            while (outcome := loop.wait(step())) is not None:
                yield outcome
        finally:
            loop.wait(results.aclose())

    async def _next(self, tasks: "deque[asyncio.Task[Outcome]]", stop: asyncio.Event) -> Outcome:
        """The outcome of the first task; raises what failed first, which may be a later one."""
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((tasks[0], stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if self._first_failure is not None:
            self._first_failure.error.add_note(f"in item {self._first_failure.index} of the batch")
            raise self._first_failure.error
        return tasks.popleft().result()

    async def _run_item(self, index: int, stop: asyncio.Event, advance: Callable[[BaseState], None]) -> Outcome:
        run = self._make_run(index)
        state = self._view(run)
        try:
            await run.run_async()
            error: Any = await run.async_state().error()
        except asyncio.CancelledError:
            run.cancel()
            raise
        except Exception as raised:
            error = raised
        advance(state)
        if error is None:
            return state
        failure = failure_of(index, error, state)
        if self._settings.is_raising and self._first_failure is None:
            self._first_failure = failure
            stop.set()
        return failure
