"""The seam between a model and its attention: AttentionBackend and Attend."""

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from sgl_runtime.device.ops import HeadNorms, Ops
from sgl_runtime.forward.forward_batch import ForwardBatch

if TYPE_CHECKING:
    from sgl_runtime.attention.triton_attention import TritonAttention

Rotary = tuple[Tensor, Tensor]
"""Cosines and sines of the new tokens' positions, (T, D / 2) each."""


class Attend(Protocol):
    """Attention of one pass; a model calls it once a layer and knows nothing else of the pass."""

    def __call__(
        self, qkv: Tensor, rotary: Rotary | None, *, layer_id: int, head_norms: HeadNorms | None = None
    ) -> Tensor:
        """Norm and rotate queries and keys, store the new keys and values, then attend.

        Args:
            qkv: (T, H + 2 G, D): queries, keys and values of the new tokens; may be overwritten.
            rotary: How queries and keys are rotated; None where they are not.
            layer_id: Which layer of the pool.
            head_norms: How each head of queries and keys is normed before; None where they are not.

        Returns:
            (T, H, D): causal attention of every new token over its request's context.
        """


class AttentionBackend(Protocol):
    """Plans the attention of a pass once, for all layers."""

    @property
    def captured(self) -> "TritonAttention | None":
        """What attends its decode passes where they are captured (`Device.capture`); None: they cannot be."""

    def prepare(self, forward_batch: ForwardBatch) -> Attend:
        """The attend of this pass; the slot table already holds the new slots."""


class AttendRotated(Protocol):
    """Attention over queries and keys that have been rotated."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, layer_id: int) -> Tensor:
        """Store the new keys and values, then attend.

        Args:
            q: (T, H, D).
            k, v: (T, G, D).
            layer_id: Which layer of the pool.

        Returns:
            (T, H, D).
        """


class RotateFirst:
    """An `Attend` that norms and rotates in operations of their own.

    Args:
        attend: Does the rest.
        num_groups: G.
        ops: The device's operations.
    """

    def __init__(self, attend: AttendRotated, *, num_groups: int, ops: Ops) -> None:
        self._attend = attend
        self._groups = num_groups
        self._ops = ops

    def __call__(
        self, qkv: Tensor, rotary: Rotary | None, *, layer_id: int, head_norms: HeadNorms | None = None
    ) -> Tensor:
        """See `Attend`."""
        heads = qkv.shape[1] - 2 * self._groups
        if head_norms is not None:
            self._ops.norm_heads(qkv, head_norms, num_heads=heads)
        qk = qkv[:, : heads + self._groups]
        if rotary is not None:
            qk = self._ops.rotary(qk, *rotary)
        return self._attend(qk[:, :heads], qk[:, heads:], qkv[:, heads + self._groups :], layer_id=layer_id)
