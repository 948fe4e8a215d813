"""Device: what the device half needs of the machine, and the table of devices."""

from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.device.ops import Ops
from sgl_runtime.registry import Registry

DEVICES = Registry("device", {"cpu": "sgl_runtime.device.cpu:CpuDevice"})


class Device(Protocol):
    """One accelerator, or the CPU.

    Attributes:
        torch_device: Where tensors live.
        ops: The fused operations of this device.
        default_attention_backend: Name in the table of attention backends.
        default_dtype: Type of the weights when nothing is asked for.
        slot_limit: Most slots that are worth holding by default; None for no limit.
    """

    torch_device: torch.device
    ops: Ops
    default_attention_backend: str
    default_dtype: torch.dtype
    slot_limit: int | None

    def free_memory_bytes(self) -> int:
        """Memory that can still be taken."""

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """A tensor of the same shape and type on this device; it may share memory with the array."""

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Uninitialised host memory that copies to and from this device run fastest with, beside other work.

        Raises:
            RuntimeError: there is not enough of it.
        """

    def to_host(self, tensor: Tensor) -> NDArray[Any]:
        """The values of a tensor as a numpy array."""


def select_device(name: str, *, num_threads: int | None) -> Device:
    """The device of this name.

    Args:
        name: A name from `DEVICES`.
        num_threads: Threads for tensor work on the host; all cores by default.

    Raises:
        ConfigError: no such device.
    """
    device: Device = DEVICES.load(name)(num_threads=num_threads)
    return device
