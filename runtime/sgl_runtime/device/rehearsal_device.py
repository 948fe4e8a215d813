"""RehearsalDevice: a device without memory, on which passes are run so that their kernels are compiled."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.device.base import Device, HostCopy, StoppedTimer, T, Timer


class RehearsalDevice:
    """See `Device`; its tensors have shapes and types, and no values.

    Args:
        device: The device whose operations it does.
    """

    def __init__(self, device: Device) -> None:
        self.torch_device = torch.device("meta")
        self.ops = device.ops
        self.attention_backends = device.attention_backends
        self.sampling_backends = device.sampling_backends
        self.default_dtype = device.default_dtype
        self.default_mem_fraction = device.default_mem_fraction
        self.slot_limit = device.slot_limit
        self.runs_beside_host = device.runs_beside_host
        self.makes_masks = device.makes_masks

    def free_memory_bytes(self) -> int:
        """See `Device`; there is none."""
        return 0

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """See `Device`."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.torch_device)

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """See `Device`."""
        return torch.empty(shape, dtype=dtype)

    def file_reader(self) -> None:
        """See `Device`; there is none."""

    def to_host(self, tensor: Tensor) -> NDArray[Any]:
        """See `Device`; zeros."""
        return np.zeros(tuple(tensor.shape), dtype=torch.empty(0, dtype=tensor.dtype).numpy().dtype)

    def start_timer(self) -> Timer:
        """See `Device`."""
        return _NoTime()

    def capture(self, run: Callable[[], T]) -> Callable[[], T]:
        """See `Device`; the work, which is done once."""
        with torch.inference_mode():
            run()
        return run

    def start_copy(self, tensor: Tensor) -> HostCopy:
        """See `Device`; of zeros."""
        return _Zeros(self.to_host(tensor))

    def compile_ahead(self, launch: Callable[[Device], None]) -> Callable[[], None]:
        """See `Device`; it is done."""
        launch(self)
        return _do_nothing


def _do_nothing() -> None:
    pass


class _NoTime:
    """See `Timer` and `StoppedTimer`."""

    def stop(self) -> StoppedTimer:
        """See `Timer`."""
        return self

    def seconds(self) -> float:
        """See `StoppedTimer`."""
        return 0.0


class _Zeros:
    """See `HostCopy`."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values

    def wait(self) -> NDArray[Any]:
        """See `HostCopy`."""
        return self._values
