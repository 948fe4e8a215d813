"""BatchProgress: what a terminal shows of a batch while it runs, and what is said of it at its end."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sgl_runtime.batch_command.run import BatchCounts


class BatchProgress:
    """Use as a context manager around the run.

    Args:
        console: Where it is shown.
        counts: What is shown.
        num_requests: All that the file holds.
        num_skipped: Those that had an answer before.
    """

    def __init__(self, console: Console, counts: BatchCounts, *, num_requests: int, num_skipped: int) -> None:
        self._console = console
        self._counts = counts
        self._num_requests = num_requests
        self._num_skipped = num_skipped
        self._begin = time.monotonic()
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[rates]}"))
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        # What was answered before does not count as the work of this run.
        self._bar = self._progress.add_task("batch", total=num_requests - num_skipped, rates="")

    def __enter__(self) -> "BatchProgress":
        self._begin = time.monotonic()
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self) -> None:
        """Show what has changed."""
        counts, seconds = self._counts, self._seconds
        num_ended = counts.num_answered + counts.num_failed
        rates = f"{num_ended / seconds:.1f}/s, {counts.output_tokens / seconds:.0f} tokens/s"
        if counts.num_failed:
            rates += f", {counts.num_failed} failed"
        self._progress.update(self._bar, completed=num_ended, rates=rates)

    def summary(self, *, was_stopped: bool) -> None:
        """Say what has become of the batch."""
        counts, seconds = self._counts, self._seconds
        parts = [f"{counts.num_answered} answered", f"{counts.num_failed} failed"]
        if self._num_skipped:
            parts.append(f"{self._num_skipped} had an answer before")
        left = self._num_requests - self._num_skipped - counts.num_answered - counts.num_failed
        if left:
            parts.append(f"{left} left")
        if counts.num_retries:
            parts.append(f"{counts.num_retries} sent again")
        num_ended = counts.num_answered + counts.num_failed
        tokens = f"{counts.input_tokens} tokens in, {counts.output_tokens} out"
        rates = f"{num_ended / seconds:.2f} requests/s, {counts.output_tokens / seconds:.0f} tokens/s"
        lines = [f"{self._num_requests} requests: {', '.join(parts)}", f"{seconds:.1f} s; {tokens}; {rates}"]
        if was_stopped:
            lines.append("stopped; the same command goes on where this one ended")
        elif counts.num_failed:
            lines.append("--rerun-failed sends those that failed again")
        self._console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)

    @property
    def _seconds(self) -> float:
        return max(time.monotonic() - self._begin, 1e-3)
