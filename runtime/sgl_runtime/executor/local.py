"""LocalExecutor: one rank in the scheduler's own process."""

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import Batch, LogitEdits, StepOutput
from sgl_runtime.model_runner.model_runner import ForwardOutput, ModelRunner


class LocalExecutor:
    """See `Executor`.

    Args:
        runner: The model runner of this process.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.runs_beside_host = False
        self._forward_seconds = 0.0

    def launch(self, batch: Batch) -> "LocalStep":
        """See `Executor`; on a CPU the pass is done when this returns."""
        output = self._runner.forward(batch)
        self._forward_seconds += output.seconds
        return LocalStep(self._runner, batch, output)

    def forward_seconds(self) -> float:
        """See `Executor`."""
        return self._forward_seconds


class LocalStep:
    """See `PendingStep`."""

    def __init__(self, runner: ModelRunner, batch: Batch, output: ForwardOutput) -> None:
        self._runner, self._batch, self._output = runner, batch, output

    def sample(self, masks: NDArray[np.int32] | None, logit_edits: LogitEdits | None) -> "LocalTokens":
        """See `PendingStep`."""
        return LocalTokens(self._runner.sample(self._batch, self._output, masks, logit_edits))


class LocalTokens:
    """See `PendingTokens`."""

    def __init__(self, output: StepOutput) -> None:
        self._output = output

    def wait(self) -> StepOutput:
        """See `PendingTokens`."""
        return self._output
