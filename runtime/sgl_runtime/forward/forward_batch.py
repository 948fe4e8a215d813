"""ForwardBatch: a Batch as the tensors of one pass."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.batch import Batch
from sgl_runtime.device.base import Device


@dataclass(frozen=True)
class ForwardBatch:
    """Device tensors of one pass, complete on construction.

    Attributes:
        batch: The host plan.
        input_ids: (T,) int64.
        positions: (T,) int64, position of each new token in its request.
        slot_ids: (T,) int64, slot of each new token.
        given_rows: Places among the new tokens, (n,) int64, and the embeddings that are given there, (n, C) float32;
            None where all are the model's.
        segments: (T,) int64, of which text of a pair each new token is; None: all of the first.
    """

    batch: Batch
    input_ids: Tensor
    positions: Tensor
    slot_ids: Tensor
    given_rows: tuple[Tensor, Tensor] | None = None
    segments: Tensor | None = None

    @classmethod
    def from_batch(cls, batch: Batch, device: Device, *, drawn_ids: Tensor | None = None) -> "ForwardBatch":
        """Move a plan to the device.

        Args:
            batch: The plan.
            device: Where to.
            drawn_ids: (rows of the slot table,) int64 tokens that were drawn last, for ids that the plan leaves open;
                None where it leaves none.
        """
        input_ids = device.to_device(batch.input_ids)
        if (batch.input_ids < 0).any():
            assert drawn_ids is not None, "the plan leaves ids open"
            # Known ids look up row 0, and are kept.
            input_ids = torch.where(input_ids < 0, drawn_ids[(-1 - input_ids).clamp(min=0)], input_ids)
        return cls(
            batch=batch,
            input_ids=input_ids,
            positions=device.to_device(new_positions(batch)),
            slot_ids=device.to_device(batch.slot_ids.astype(np.int64)),
            given_rows=None
            if batch.given_rows is None
            else (device.to_device(batch.given_rows.places), device.to_device(batch.given_rows.rows)),
            segments=None if batch.segments is None else device.to_device(batch.segments),
        )


def new_positions(batch: Batch) -> NDArray[np.int64]:
    """(T,) int64 positions of the new tokens of all rows."""
    starts = np.cumsum(batch.extend_lens) - batch.extend_lens
    offsets = np.repeat(batch.prefix_lens - starts, batch.extend_lens)
    positions: NDArray[np.int64] = np.arange(len(batch.input_ids), dtype=np.int64) + offsets
    return positions
