"""The seam between host and device: Executor, PendingStep, PendingTokens.  Torch-free."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import Batch, StepOutput


class PendingTokens(Protocol):
    """Tokens that are being drawn."""

    def wait(self) -> StepOutput:
        """The result, once it is on the host."""


class PendingStep(Protocol):
    """A pass that has been launched; the host may prepare masks meanwhile."""

    def sample(self, masks: NDArray[np.int32] | None) -> PendingTokens:
        """Draw the next tokens.

        Args:
            masks: (B, ceil(V / 32)) int32 token masks, or None where no row is constrained.
        """


class Executor(Protocol):
    """All ranks."""

    def launch(self, batch: Batch) -> PendingStep:
        """Start a pass."""

    def forward_seconds(self) -> float:
        """Time that all forward passes took so far."""
