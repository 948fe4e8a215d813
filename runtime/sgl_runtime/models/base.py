"""What the runners of passes know of a model: CausalModel, which generates, and PoolingModel, which makes vectors."""

from collections.abc import Iterable
from typing import Protocol

from torch import Tensor

from sgl_runtime.attention.base import Attend


class LoadableModel(Protocol):
    """A model whose weights come from files or are made up."""

    def make_up_weights(self) -> None:
        """Fill every weight with small random numbers, where the weights live."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take over every weight, by Hugging Face's names.

        Raises:
            ModelLoadError: a name is unknown, missing, or of another shape.
        """


class CausalModel(LoadableModel, Protocol):
    """A decoder-only language model; it knows no pool, no batch and no global."""

    def embed(self, input_ids: Tensor) -> Tensor:
        """(T,) int64 tokens to their embeddings, (T, C)."""

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        attend: Attend,
        embedded: Tensor | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """Hidden states after the last norm.

        Args:
            input_ids: (T,) int64 tokens.
            positions: (T,) int64, the place of each in its request.
            attend: Attention of this pass.
            embedded: (T, C) embeddings in place of those of `input_ids`, in the type of the weights.
            wanted: (R,) int64 places of the tokens whose hidden states are wanted, one at least; None: of all.

        Returns:
            (R, C), and (T, C) of all.
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """(R, C) hidden states to (R, V) logits, in the type of the weights."""


class PoolingModel(LoadableModel, Protocol):
    """A model of whose hidden states vectors are made."""

    def forward(self, input_ids: Tensor, positions: Tensor, attend: Attend, segments: Tensor | None = None) -> Tensor:
        """Hidden states after the last layer; see `CausalModel`.

        Args:
            input_ids: (T,) int64 tokens.
            positions: (T,) int64, the place of each in its request.
            attend: Attention of this pass.
            segments: (T,) int64, of which text of a pair each token is; None: all of the first.  Only models that tell
                two texts apart are given any.
        """

    def vectors(self, pooled: Tensor) -> Tensor:
        """(R, C) pooled hidden states to (R, size) vectors: through the model's head, if it has one."""
