"""The CPU as a device."""

from typing import Any

import numpy as np
import psutil
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from sgl_runtime.config import CPU_SLOT_LIMIT
from sgl_runtime.device.ops import Ops

MAX_TRANSPOSED_ROWS = 64


class CpuOps(Ops):
    """Ops with the faster of the matrix products that a CPU offers at each number of rows."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `Ops.linear`.

        torch's own linear reads the weights at a third of what the memory gives when x has one row, and packs them anew
        at every call when x has few; numpy's matrix-vector product and the product in the transposed order do not
        (benchmarks/linear_cpu.py).
        """
        if x.dtype != torch.float32 or x.shape[0] > MAX_TRANSPOSED_ROWS:
            return F.linear(x, weight, bias)
        if x.shape[0] == 1:
            out = torch.from_numpy(np.dot(weight.numpy(), x[0].numpy())).unsqueeze(0)
        else:
            out = torch.mm(weight, x.t()).t()
        return out if bias is None else out + bias

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `Ops.rms_norm`."""
        return F.rms_norm(x, weight.shape, weight, eps)


class CpuDevice:
    """See `Device`.

    Args:
        num_threads: Threads for torch; all cores by default.
    """

    def __init__(self, *, num_threads: int | None) -> None:
        self.torch_device = torch.device("cpu")
        self.ops = CpuOps()
        self.default_attention_backend = "reference"
        self.default_dtype = torch.float32
        self.slot_limit = CPU_SLOT_LIMIT
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        # Two pools of threads that both spin while idle take each other's cores: torch's runs, numpy's stays at one.
        threadpool_limits(limits=1, user_api="blas")

    def free_memory_bytes(self) -> int:
        """See `Device`."""
        return int(psutil.virtual_memory().available)

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """See `Device`."""
        return torch.from_numpy(np.ascontiguousarray(array))

    def to_host(self, tensor: Tensor) -> NDArray[Any]:
        """See `Device`."""
        return tensor.numpy()
