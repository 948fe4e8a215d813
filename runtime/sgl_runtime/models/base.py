"""CausalModel: what the model runner knows of a model."""

from collections.abc import Iterable
from typing import Protocol

from torch import Tensor

from sgl_runtime.attention.base import Attend


class CausalModel(Protocol):
    """A decoder-only language model; it knows no pool, no batch and no global."""

    def forward(self, input_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden states after the last norm.

        Args:
            input_ids: (T,) int64 tokens.
            positions: (T,) int64, the place of each in its request.
            attend: Attention of this pass.

        Returns:
            (T, C).
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """(R, C) hidden states to (R, V) logits, in the type of the weights."""

    def make_up_weights(self) -> None:
        """Fill every weight with small random numbers, where the weights live."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take over every weight, by Hugging Face's names.

        Raises:
            ModelLoadError: a name is unknown, missing, or of another shape.
        """
