"""LocalExecutor: one rank in the scheduler's own process."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import Batch, LogitEdits, StepOutput
from sgl_runtime.model_runner.pass_output import ForwardOutput, PendingOutput, TokenChoice
from sgl_runtime.model_runner.pass_profiler import PassProfiler
from sgl_runtime.model_runner.pass_runner import PassRunner

if TYPE_CHECKING:
    from sgl_runtime.model_runner.row_grammars import RowGrammars


class LocalExecutor:
    """See `Executor`.

    Args:
        runner: Runs the passes of this process.
    """

    def __init__(self, runner: PassRunner) -> None:
        self._runner = runner
        self.runs_beside_host = runner.runs_beside_host
        self._forward_seconds = 0.0
        self._profiler = PassProfiler()

    def launch(self, batch: Batch) -> "LocalStep":
        """See `Executor`; on a CPU the pass is done when this returns."""
        return LocalStep(self, batch, self._runner.forward(batch))

    def sample(self, batch: Batch, output: ForwardOutput, choice: TokenChoice) -> "LocalTokens":
        """Draw the tokens of a pass that was launched."""
        return LocalTokens(self, self._runner.sample(batch, output, choice))

    def add_seconds(self, seconds: float) -> None:
        """A pass is over: count its time."""
        self._forward_seconds += seconds
        self._profiler.note_pass()

    def open_grammars(
        self, token_bytes: Sequence[bytes | None], *, end_ids: frozenset[int], size: int, max_depth: int
    ) -> "RowGrammars | None":
        """See `Executor`."""
        return self._runner.open_grammars(token_bytes, end_ids=end_ids, size=size, max_depth=max_depth)

    def forward_seconds(self) -> float:
        """See `Executor`."""
        return self._forward_seconds

    def start_profile(
        self,
        folder: Path,
        *,
        num_passes: int | None,
        activities: Sequence[str],
        record_shapes: bool,
        with_stack: bool,
    ) -> str:
        """See `Executor`."""
        return self._profiler.start(
            folder, num_passes=num_passes, activities=activities, record_shapes=record_shapes, with_stack=with_stack
        )

    def stop_profile(self) -> str:
        """See `Executor`."""
        return self._profiler.stop()


class LocalStep:
    """See `PendingStep`."""

    def __init__(self, executor: LocalExecutor, batch: Batch, output: ForwardOutput) -> None:
        self._executor, self._batch, self._output = executor, batch, output

    def sample(
        self,
        masks: NDArray[np.int32] | None,
        logit_edits: LogitEdits | None,
        forced_ids: NDArray[np.int64] | None = None,
    ) -> "LocalTokens":
        """See `PendingStep`."""
        return self._executor.sample(self._batch, self._output, TokenChoice(masks, logit_edits, forced_ids))


class LocalTokens:
    """See `PendingTokens`."""

    def __init__(self, executor: LocalExecutor, pending: PendingOutput) -> None:
        self._executor, self._pending = executor, pending

    def wait(self) -> StepOutput:
        """See `PendingTokens`."""
        output = self._pending.wait()
        self._executor.add_seconds(self._pending.seconds())
        return output
