"""PassRunner: what an executor asks of whatever runs its passes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from sgl_runtime.batch import Batch
from sgl_runtime.model_runner.pass_output import NO_CHOICE, ForwardOutput, PendingOutput, TokenChoice

if TYPE_CHECKING:
    from sgl_runtime.model_runner.row_grammars import RowGrammars


class PassRunner(Protocol):
    """Runs the passes of one rank.

    Attributes:
        runs_beside_host: Whether a pass goes on while the host does something else.
    """

    runs_beside_host: bool

    def forward(self, batch: Batch) -> ForwardOutput:
        """Run the model over the new tokens of a pass."""

    def sample(self, batch: Batch, output: ForwardOutput, choice: TokenChoice = NO_CHOICE) -> PendingOutput:
        """Draw the next tokens, where the batch samples."""

    def open_grammars(
        self, token_bytes: Sequence[bytes | None], *, end_ids: frozenset[int], size: int, max_depth: int
    ) -> "RowGrammars | None":
        """See `Executor`."""
