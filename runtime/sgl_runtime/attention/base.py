"""The seam between a model and its attention: AttentionBackend and Attend."""

from typing import Protocol

from torch import Tensor

from sgl_runtime.forward.forward_batch import ForwardBatch


class Attend(Protocol):
    """Attention of one pass; a model calls it once a layer and knows nothing else of the pass."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, layer_id: int) -> Tensor:
        """Store the new keys and values, then attend.

        Args:
            q: (T, H, D) queries of the new tokens, rotated.
            k, v: (T, G, D) keys and values of the new tokens; k rotated.
            layer_id: Which layer of the pool.

        Returns:
            (T, H, D): causal attention of every new token over its request's context.
        """


class AttentionBackend(Protocol):
    """Plans the attention of a pass once, for all layers."""

    def prepare(self, forward_batch: ForwardBatch) -> Attend:
        """The attend of this pass; the slot table already holds the new slots."""
