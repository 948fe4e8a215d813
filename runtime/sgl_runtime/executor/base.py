"""The seam between host and device: Executor, PendingStep, PendingTokens.  Torch-free."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import Batch, LogitEdits, StepOutput


class PendingTokens(Protocol):
    """Tokens that are being drawn."""

    def wait(self) -> StepOutput:
        """The result, once it is on the host."""


class PendingStep(Protocol):
    """A pass that has been launched; the host may apply the pass before it, and prepare masks and edits, meanwhile."""

    def sample(self, masks: NDArray[np.int32] | None, logit_edits: LogitEdits | None) -> PendingTokens:
        """Draw the next tokens, where the batch samples.

        Args:
            masks: (B, ceil(V / 32)) int32 token masks, or None where no row is constrained.
            logit_edits: Penalties, biases and the like, or None where no row has any.
        """


class Executor(Protocol):
    """All ranks.

    Passes and draws happen in the order of the calls, so a pass may be launched while the host does not know yet what
    the one before it drew.

    Attributes:
        runs_beside_host: Whether passes run while the host goes on, so that planning ahead pays.
    """

    runs_beside_host: bool

    def launch(self, batch: Batch) -> PendingStep:
        """Start a pass."""

    def forward_seconds(self) -> float:
        """Time that all forward passes took so far."""
