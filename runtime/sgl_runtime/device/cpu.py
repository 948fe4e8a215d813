"""The CPU as a device."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.config_values import CPU_SLOT_LIMIT
from sgl_runtime.device.base import Device, HostCopy, T
from sgl_runtime.device.ops import Ops
from sgl_runtime.errors import ConfigError

PACKED_ROWS = 32
"""Rows of x that weights are packed for; the same packing serves one row and a thousand (benchmarks/linear_cpu.py)."""

BLOCK_ROWS = 16
"""Rows of every linear where results must not depend on their number."""

UNDIVIDED = 32_000
"""Numbers that torch leaves to one thread: its limit is 32,768."""

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

    def mask_logits(self, logits: Tensor, masks: Tensor) -> None:
        """See `Ops.mask_logits`."""
        words = masks.contiguous().numpy().view(np.uint8)
        bits = np.unpackbits(words, axis=1, bitorder="little", count=logits.shape[1])
        logits.masked_fill_(torch.from_numpy(bits == 0), float("-inf"))


class InvariantCpuOps(CpuOps):
    """Ops that give a row the same bits whatever the other rows are, and however many.

    A linear picks its kernel by the number of rows, so it is given blocks of one size.  Elementwise operations take a
    vector at a time, and what is left over one by one, with another exp; where threads divide the work, something is
    left over in the midst of rows.  So they are given no more at a time than one thread does alone.
    """

    def __init__(self) -> None:
        self._tried: set[torch.Size] = set()

    def pack_weight(self, weight: Tensor) -> Tensor:
        """See `Ops.pack_weight`.

        Raises:
            ConfigError: a row's place in its block changes its result here.
        """
        packed = super().pack_weight(weight)
        if weight.shape not in self._tried:
            x = torch.randn(BLOCK_ROWS, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight.dtype)
            whole = super().linear(x, packed)
            if not all(
                torch.equal(whole, super(InvariantCpuOps, self).linear(x.roll(shift, 0), packed).roll(-shift, 0))
                for shift in range(1, BLOCK_ROWS)
            ):
                raise ConfigError(
                    f"enable_deterministic_inference cannot be kept here: linears of {tuple(weight.shape)} in"
                    f" {weight.dtype} depend on the place of a row"
                )
            self._tried.add(weight.shape)
        return packed

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `Ops.linear`."""
        if not len(x):
            return super().linear(x, weight, bias)
        padded = F.pad(x, (0, 0, 0, -len(x) % BLOCK_ROWS))
        begins = range(0, len(padded), BLOCK_ROWS)
        blocks = [super(InvariantCpuOps, self).linear(padded[i : i + BLOCK_ROWS], weight, bias) for i in begins]
        return torch.cat(blocks)[: len(x)]

    def silu_and_mul(self, x: Tensor) -> Tensor:
        """See `Ops.silu_and_mul`."""
        out = x.new_empty(x.shape[0], x.shape[1] // 2)
        num_columns = min(out.shape[1], UNDIVIDED // 2)
        num_rows = UNDIVIDED // num_columns
        for column in range(0, out.shape[1], num_columns):
            columns = slice(column, column + num_columns)
            for row in range(0, len(x), num_rows):
                rows = slice(row, row + num_rows)
                gate, up = x.chunk(2, dim=-1)
                out[rows, columns] = F.silu(gate[rows, columns]) * up[rows, columns]
        return out


class CpuDevice:
    """See `Device`.

    Args:
        num_threads: Threads for tensor work; all cores by default.
        deterministic: Whether what is computed of a token may depend on nothing but its context.
    """

    def __init__(self, *, num_threads: int | None, deterministic: bool = False) -> None:
        self.torch_device = torch.device("cpu")
        self.ops = InvariantCpuOps() if deterministic else CpuOps()
        self.attention_backends = ("invariant",) if deterministic else ("reference", "invariant")
        self.sampling_backends = ("pytorch",)
        self.default_dtype = torch.float32
        self.default_mem_fraction = 0.5
        self.runs_beside_host = False
        self.makes_masks = False
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

    def file_reader(self) -> None:
        """See `Device`; there is none."""

    def to_host(self, tensor: Tensor) -> NDArray[Any]:
        """See `Device`."""
        return tensor.numpy()

    def start_timer(self) -> "_Timer":
        """See `Device`; work is done when the call that asks for it returns."""
        return _Timer()

    def capture(self, run: Callable[[], T]) -> Callable[[], T]:
        """See `Device`; here the work itself."""
        return run

    def compile_ahead(self, launch: Callable[[Device], None]) -> Callable[[], None]:
        """See `Device`; nothing is compiled here."""
        return _nothing_to_wait_for

    def start_copy(self, tensor: Tensor) -> HostCopy:
        """See `Device`; what makes the values is done already."""
        return _Done(self.to_host(tensor))


def _nothing_to_wait_for() -> None:
    pass


class _Timer:
    """See `Timer` and `StoppedTimer`."""

    def __init__(self) -> None:
        self._begin = self._end = time.monotonic()

    def stop(self) -> "_Timer":
        """See `Timer`."""
        self._end = time.monotonic()
        return self

    def seconds(self) -> float:
        """See `StoppedTimer`."""
        return self._end - self._begin


class _Done:
    """See `HostCopy`."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values

    def wait(self) -> NDArray[Any]:
        """See `HostCopy`."""
        return self._values
