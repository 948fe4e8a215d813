"""A CPU that reads weights as a GPU does, by threads through pieces of host memory."""

from typing import Any

import torch

from sgl_runtime.device import file_reader
from sgl_runtime.device.cpu import CpuDevice
from sgl_runtime.device.file_reader import FileReader

NUM_LANES = 3


class CopyLane:
    """See `Lane`."""

    def __init__(self) -> None:
        self.buffer = torch.empty(file_reader.PIECE_BYTES, dtype=torch.uint8)

    def send(self, target: torch.Tensor, after: Any) -> None:
        assert after == "mark"
        target.copy_(self.buffer[: len(target)])


class LaneDevice(CpuDevice):
    """See `Device`."""

    def __init__(self) -> None:
        super().__init__(num_threads=None)

    def file_reader(self) -> FileReader:
        """See `Device`."""
        lanes = [CopyLane() for _ in range(NUM_LANES)]
        return FileReader(lanes, device=self.torch_device, mark=lambda: "mark", begin_thread=lambda: None)
