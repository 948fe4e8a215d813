"""Device: what the device half needs of the machine, and the table of devices."""

import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.device.file_reader import FileReader
from sgl_runtime.device.ops import Ops
from sgl_runtime.registry import Registry

logger = logging.getLogger(__name__)

T = TypeVar("T")

DEVICES = Registry("device", {"cpu": "sgl_runtime.device.cpu:CpuDevice", "cuda": "sgl_runtime.device.cuda:CudaDevice"})

LEAST_CAPABILITY = (8, 0)
"""Compute capability from which on a GPU has bfloat16, and copies into shared memory beside its work."""


class HostCopy(Protocol):
    """Values on their way to the host."""

    def wait(self) -> NDArray[Any]:
        """The values, once they are there; asked for once."""


class StoppedTimer(Protocol):
    """A stretch of the device's work."""

    def seconds(self) -> float:
        """How long it took; asked for when it is done."""


class Timer(Protocol):
    """A stretch of the device's work that has begun."""

    def stop(self) -> StoppedTimer:
        """End it with the work that was given to the device last."""


class Device(Protocol):
    """One accelerator, or the CPU.

    Attributes:
        torch_device: Where tensors live.
        ops: The fused operations of this device.
        attention_backends: Names in the table of attention backends that run on it, the default first.
        sampling_backends: Names in the table of sampling backends that run on it, the default first.
        default_dtype: Type of the weights when nothing is asked for.
        default_mem_fraction: Share of the memory that is free after loading that keys and values get by default.
        runs_beside_host: Whether its work goes on while the host does something else.
        makes_masks: Whether it makes the token masks of automata itself.
        slot_limit: Most slots that are worth holding by default; None for no limit.
    """

    torch_device: torch.device
    ops: Ops
    attention_backends: tuple[str, ...]
    sampling_backends: tuple[str, ...]
    default_dtype: torch.dtype
    default_mem_fraction: float
    runs_beside_host: bool
    makes_masks: bool
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

    def file_reader(self) -> FileReader | None:
        """What brings tensors from files here; None where it is as fast to map files into memory."""

    def to_host(self, tensor: Tensor) -> NDArray[Any]:
        """The values of a tensor as a numpy array; waits for them."""

    def start_timer(self) -> Timer:
        """Measure what is given to the device from now on."""

    def capture(self, run: Callable[[], T]) -> Callable[[], T]:
        """Work that will be done again and again with the same tensors, in the form in which that is fastest.

        Args:
            run: Does it once; what it returns is overwritten by each repetition.
        """

    def compile_ahead(self, launch: Callable[["Device"], None]) -> Callable[[], None]:
        """Begin to compile what work on this device will launch, beside whatever comes next.

        Args:
            launch: Does such work on the device that it is given, which has no memory.

        Returns:
            Waits until it is done.
        """

    def start_copy(self, tensor: Tensor) -> HostCopy:
        """Begin to bring the values of a tensor to the host, without waiting for what makes them."""


def select_device(name: str, *, num_threads: int | None, deterministic: bool = False) -> Device:
    """The device of this name.

    Args:
        name: A name from `DEVICES`, or auto.
        num_threads: Threads for tensor work on the host; all cores by default.
        deterministic: Whether what is computed of a token may depend on nothing but its context.

    Raises:
        ConfigError: no such device.
    """
    if name == "auto":
        refusal = cuda_refusal()
        if refusal is not None and torch.cuda.is_available():
            logger.warning("the GPU is not used: %s", refusal)
        name = "cuda" if refusal is None else "cpu"
    device: Device = DEVICES.load(name)(num_threads=num_threads, deterministic=deterministic)
    return device


def cuda_refusal() -> str | None:
    """Why there is no CUDA device that can be used; None: there is one."""
    if not torch.cuda.is_available():
        return "no CUDA device is to be found"
    capability = torch.cuda.get_device_capability()
    if capability >= LEAST_CAPABILITY:
        return None
    has, least = (".".join(map(str, each)) for each in (capability, LEAST_CAPABILITY))
    return f"{torch.cuda.get_device_name()} has compute capability {has}, and at least {least} is needed"
