"""SlotTable: the device's mirror of the host's ReqToTokenPool."""

import numpy as np
import torch
from torch import Tensor

from sgl_runtime.batch import Batch
from sgl_runtime.device.base import Device


class SlotTable:
    """Slots by row and position; each pass brings only what is new.

    Args:
        num_rows: Rows of the host's table.
        context_length: Positions a row.
        device: Where the mirror lives.
    """

    def __init__(self, *, num_rows: int, context_length: int, device: Device) -> None:
        self.num_rows = num_rows
        self._table = torch.zeros((num_rows, context_length), dtype=torch.int32, device=device.torch_device)
        self._device = device

    def update(self, batch: Batch) -> None:
        """Take over the slots of a pass: prefixes of joining rows, and every new token's slot."""
        for row, prefix in batch.changed_slots:
            self._table[row, : len(prefix)] = self._device.to_device(prefix)
        if batch.kind == "decode":
            rows = self._device.to_device(batch.row_ids.astype(np.int64))
            columns = self._device.to_device(batch.prefix_lens.astype(np.int64))
            self._table[rows, columns] = self._device.to_device(batch.slot_ids)
            return
        starts = np.cumsum(batch.extend_lens) - batch.extend_lens
        for index, row in enumerate(batch.row_ids.tolist()):
            begin, length = int(starts[index]), int(batch.extend_lens[index])
            column = int(batch.prefix_lens[index])
            new = batch.slot_ids[begin : begin + length]
            self._table[row, column : column + length] = self._device.to_device(new)

    def rows(self, row_ids: Tensor, length: int) -> Tensor:
        """(len(row_ids), length) int32 slots of the first positions of some rows."""
        return self._table[row_ids, :length]
