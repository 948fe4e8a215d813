"""The CPU as a device."""

from typing import Any

import numpy as np
import psutil
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.config_values import CPU_SLOT_LIMIT
from sgl_runtime.device.ops import Ops

PACKED_ROWS = 32
"""Rows of x that weights are packed for; the same packing serves one row and a thousand (benchmarks/linear_cpu.py)."""


_HAS_ONEDNN: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


class CpuOps(Ops):
    """Ops over weights that oneDNN has packed once.

    torch's own float32 linear packs the weights anew at every call, and reads them at a third of what the memory gives
    when x has one row.
    """

    def pack_weight(self, weight: Tensor) -> Tensor:
        """See `Ops.pack_weight`; the result is opaque to everything but `linear`."""
        if not _HAS_ONEDNN or weight.dtype not in (torch.float32, torch.bfloat16):
            return weight
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS)
        return packed

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `Ops.linear`."""
        if not weight.is_mkldnn:
            return F.linear(x, weight, bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `Ops.rms_norm`."""
        return F.rms_norm(x, weight.shape, weight, eps)


class CpuDevice:
    """See `Device`.

    Args:
        num_threads: Threads for tensor work; all cores by default.
    """

    def __init__(self, *, num_threads: int | None) -> None:
        self.torch_device = torch.device("cpu")
        self.ops = CpuOps()
        self.default_attention_backend = "reference"
        self.default_dtype = torch.float32
        self.slot_limit = CPU_SLOT_LIMIT
        if num_threads is not None:
            torch.set_num_threads(num_threads)

    def free_memory_bytes(self) -> int:
        """See `Device`."""
        return int(psutil.virtual_memory().available)

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """See `Device`."""
        return torch.from_numpy(np.ascontiguousarray(array))

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """See `Device`."""
        return torch.empty(shape, dtype=dtype)

    def to_host(self, tensor: Tensor) -> NDArray[Any]:
        """See `Device`."""
        return tensor.numpy()
