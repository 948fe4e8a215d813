"""The seam between host and device: Executor, PendingStep, PendingTokens.  Torch-free."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.batch import AutomatonTables, Batch, LogitEdits, StepOutput


class PendingTokens(Protocol):
    """Tokens that are being drawn."""

    def wait(self) -> StepOutput:
        """The result, once it is on the host."""


class PendingStep(Protocol):
    """A pass that has been launched; the host may apply the pass before it, and prepare masks and edits, meanwhile."""

    def sample(
        self,
        masks: NDArray[np.int32] | None,
        logit_edits: LogitEdits | None,
        forced_ids: NDArray[np.int64] | None = None,
    ) -> PendingTokens:
        """Draw the next tokens, where the batch samples.

        Args:
            masks: (B, ceil(V / 32)) int32 token masks, or None where no row is constrained.
            logit_edits: Penalties, biases and the like, or None where no row has any.
            forced_ids: (B,) the token that a row must take, -1 where it is drawn; None where all are drawn.
        """


class DeviceGrammars(Protocol):
    """Automata on the device, from which it makes token masks inside a pass."""

    def hold(self, automaton: AutomatonTables) -> int | None:
        """Bring an automaton to the device, or find it there; a name for this use of it, None if there is no room."""

    def let_go(self, handle: int) -> None:
        """This use is over."""


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

    def open_grammars(
        self, token_bytes: Sequence[bytes | None], *, end_ids: frozenset[int], size: int, max_depth: int
    ) -> DeviceGrammars | None:
        """Get ready to make token masks on the device; None where it cannot.

        Args:
            token_bytes: For each id its bytes; None or empty for ids that a constrained output never holds.
            end_ids: Ids that end an output.
            size: Number of logits, V.
            max_depth: Most arrays, objects and strings that an output may nest.
        """

    def forward_seconds(self) -> float:
        """Time that all forward passes took so far."""

    def start_profile(
        self,
        folder: Path,
        *,
        num_passes: int | None,
        activities: Sequence[str],
        record_shapes: bool,
        with_stack: bool,
    ) -> str:
        """Record where the time of passes goes; every rank writes a file when it is stopped, or after `num_passes`.

        Raises:
            InvalidRequestError: one is being recorded, or the folder cannot be made.
        """

    def stop_profile(self) -> str:
        """Write what was recorded; the files, in words.

        Raises:
            InvalidRequestError: nothing is being recorded, or a file cannot be written.
        """
