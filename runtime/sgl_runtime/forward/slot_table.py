"""SlotTable: the device's mirror of the host's ReqToTokenPool."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.batch import Batch, IntArray
from sgl_runtime.device.base import Device
from sgl_runtime.forward.forward_batch import new_positions


class SlotTable:
    """Slots by row and position; each pass brings only what is new.

    Args:
        num_rows: Rows of the host's table.
        context_length: Positions a row.
        device: Where the mirror lives.

    Attributes:
        table: (rows + 1, positions, rounded up to 16) int32.
    """

    def __init__(self, *, num_rows: int, context_length: int, device: Device) -> None:
        self.num_rows = num_rows
        # One row more than there are, for rows that only fill up a pass.  Rows begin at multiples of 64 bytes: kernels
        # are compiled for that, before the length of contexts is known.
        width = -(-context_length // 16) * 16
        self.table = torch.zeros((num_rows + 1, width), dtype=torch.int32, device=device.torch_device)
        self._device = device

    def update(self, batch: Batch) -> None:
        """Take over the slots of a pass: prefixes of joining rows, and every new token's slot."""
        rows = np.repeat(batch.row_ids, batch.extend_lens)
        self._write(batch.changed_slots, rows, new_positions(batch), batch.slot_ids)

    def update_prefixes(self, batch: Batch) -> None:
        """Take over the slots of the prefixes of joining rows only."""
        if batch.changed_slots:
            nothing = np.empty(0, dtype=np.int32)
            self._write(batch.changed_slots, nothing, nothing.astype(np.int64), nothing)

    def _write(
        self, changed: tuple[tuple[int, IntArray], ...], rows: IntArray, columns: NDArray[np.int64], slots: IntArray
    ) -> None:
        if changed:
            # Lists joined with what is new: each copy to a device takes its time, however small.
            prefixes = [prefix for _, prefix in changed]
            lengths = [len(prefix) for prefix in prefixes]
            rows = np.concatenate([np.repeat(np.array([row for row, _ in changed], dtype=np.int32), lengths), rows])
            columns = np.concatenate([*map(np.arange, lengths), columns])
            slots = np.concatenate([*prefixes, slots])
        if len(rows):
            places = self._device.to_device(np.stack([rows, columns]).astype(np.int64))
            self.table[places[0], places[1]] = self._device.to_device(slots)

    def rows(self, row_ids: Tensor, length: int) -> Tensor:
        """(len(row_ids), length) int32 slots of the first positions of some rows."""
        return self.table[row_ids, :length]
