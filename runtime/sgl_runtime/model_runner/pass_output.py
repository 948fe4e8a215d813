"""What a pass leaves on the device, what the host has to say of its draw, and what comes of both."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.batch import Alternatives, Batch, LogitEdits, StepOutput
from sgl_runtime.device.base import HostCopy, StoppedTimer
from sgl_runtime.model_runner.logprobs import InputLogprobs


@dataclass(frozen=True)
class ForwardOutput:
    """What a pass left on the device.

    Attributes:
        logits: (S, V) of the rows that sample, in row order; None from a model that makes vectors.
        inputs: Log probabilities of the prompt's tokens.
        hidden_states: See `StepOutput`.
        timer: How long the pass takes.
        vectors: What vectors are made of, on its way to the host; None: none.
        drawn: (B,) int64 tokens that were drawn along, where nothing but the settings of the batch is to be heeded.
    """

    logits: Tensor | None
    inputs: InputLogprobs
    hidden_states: tuple[NDArray[np.float32] | None, ...] | None
    timer: StoppedTimer
    vectors: "PendingVectors | None" = None
    drawn: Tensor | None = None


@dataclass(frozen=True)
class PendingVectors:
    """What the vectors of a pass are made of.

    Attributes:
        rows: (R,) rows of the batch.
        values: (R, size) float32, on their way to the host.
    """

    rows: NDArray[np.int64]
    values: HostCopy

    def wait(self, num_rows: int) -> tuple[NDArray[np.float32] | None, ...]:
        """See `StepOutput`."""
        found: list[NDArray[np.float32] | None] = [None] * num_rows
        for row, vector in zip(self.rows.tolist(), self.values.wait(), strict=True):
            found[row] = vector
        return tuple(found)


@dataclass(frozen=True)
class TokenChoice:
    """What the host has to say of the tokens that a pass draws.

    Attributes:
        masks: (B, ceil(V / 32)) int32 token masks, or None where the host makes none.
        logit_edits: By row of the batch, or None where no row has any.
        forced_ids: (B,) int64 tokens that rows must take, -1 where they are drawn; None: all are drawn.
    """

    masks: NDArray[np.int32] | None = None
    logit_edits: LogitEdits | None = None
    forced_ids: NDArray[np.int64] | None = None


NO_CHOICE = TokenChoice()


class PendingOutput:
    """What a pass gives, as far as it is known.

    Args:
        batch: The pass.
        output: What its forward gave.

    Attributes:
        tokens, logprobs: (S,) on their way to the host, of the rows that sample; None: none.
        alternatives: See `StepOutput`.
        failures: By row of the batch, what went wrong.
    """

    def __init__(self, batch: Batch, output: ForwardOutput) -> None:
        self._batch, self._output = batch, output
        self.tokens: HostCopy | None = None
        self.logprobs: HostCopy | None = None
        self.alternatives: tuple[Alternatives | None, ...] | None = None
        self.failures: dict[int, str] = {}

    def wait(self) -> StepOutput:
        """All of it, once it is on the host."""
        batch, rows = self._batch, self._batch.samples
        token_ids = np.full(batch.size, -1, dtype=np.int64)
        logprobs = np.full(batch.size, np.nan, dtype=np.float32)
        if self.tokens is not None:
            token_ids[rows] = self.tokens.wait()
        if self.logprobs is not None:
            logprobs[rows] = np.where(batch.wants_logprob[rows], self.logprobs.wait(), np.nan)
        failures = self.failures
        return StepOutput(
            token_ids=token_ids,
            logprobs=logprobs,
            input_logprobs=self._output.inputs.values,
            alternatives=self.alternatives,
            input_alternatives=self._output.inputs.alternatives,
            hidden_states=self._output.hidden_states,
            vectors=None if self._output.vectors is None else self._output.vectors.wait(batch.size),
            failures=tuple(failures.get(row) for row in range(batch.size)) if failures else None,
        )

    def seconds(self) -> float:
        """Time of the forward pass; asked for after `wait`."""
        return self._output.timer.seconds()
