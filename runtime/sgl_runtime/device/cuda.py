"""A CUDA GPU as a device."""

from collections.abc import Callable
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.device.base import HostCopy, T
from sgl_runtime.device.kernels.matvec import matvec
from sgl_runtime.device.kernels.norm import norm_heads, rms_norm, silu_and_mul
from sgl_runtime.device.kernels.sampling import draw, mask_logits
from sgl_runtime.device.ops import Ops
from sgl_runtime.errors import ConfigError


class CudaOps(Ops):
    """Ops as Triton kernels; what is left plain is matrix products, which the vendor's library does best."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `Ops.linear`."""
        if x.shape[0] == 1:
            return matvec(x, weight, bias)
        return super().linear(x, weight, bias)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `Ops.rms_norm`."""
        return rms_norm(x, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """See `Ops.add_rms_norm`; `residual` is overwritten with the sum."""
        return rms_norm(x, weight, eps, residual), residual

    def norm_heads(self, qkv: Tensor, q_weight: Tensor, k_weight: Tensor, *, num_heads: int, eps: float) -> None:
        """See `Ops.norm_heads`."""
        norm_heads(qkv, q_weight, k_weight, num_heads=num_heads, eps=eps)

    def silu_and_mul(self, x: Tensor) -> Tensor:
        """See `Ops.silu_and_mul`."""
        return silu_and_mul(x)

    def mask_logits(self, logits: Tensor, masks: Tensor) -> None:
        """See `Ops.mask_logits`."""
        mask_logits(logits, masks)

    def draw(self, logits: Tensor, temperatures: Tensor, uniforms: Tensor, masks: Tensor | None = None) -> Tensor:
        """See `Ops.draw`; the largest of logit and noise, where the noise comes from the row's number."""
        seeds = (uniforms * 2.0**53).long()
        return draw(logits, temperatures=temperatures, seeds=seeds, masks=masks)


class CudaDevice:
    """See `Device`.

    Args:
        num_threads: Threads for tensor work on the host; all cores by default.
        deterministic: Refused: it is not built for this device.

    Raises:
        ConfigError: there is no such device, or an option does not go with it.
    """

    def __init__(self, *, num_threads: int | None, deterministic: bool = False) -> None:
        if not torch.cuda.is_available():
            raise ConfigError("device is cuda, and no CUDA device is to be found; use device cpu")
        if deterministic:
            raise ConfigError("enable_deterministic_inference is true; with device cuda it must be false")
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        self.ops = CudaOps()
        self.attention_backends = ("triton", "reference", "invariant")
        self.default_dtype = torch.bfloat16
        self.default_mem_fraction = 0.85
        self.slot_limit = None
        self.runs_beside_host = True
        self.makes_masks = True
        self._graph_pool: Any = None
        self._free_buffers: dict[tuple[torch.Size, torch.dtype], list[Tensor]] = {}
        if num_threads is not None:
            torch.set_num_threads(num_threads)

    def free_memory_bytes(self) -> int:
        """See `Device`."""
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self.torch_device)[0])

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """See `Device`."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.torch_device, non_blocking=True)

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """See `Device`."""
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def to_host(self, tensor: Tensor) -> NDArray[Any]:
        """See `Device`."""
        values: NDArray[Any] = tensor.cpu().numpy()
        return values

    def start_timer(self) -> "_EventTimer":
        """See `Device`."""
        return _EventTimer()

    def capture(self, run: Callable[[], T]) -> Callable[[], T]:
        """See `Device`; a CUDA graph.  All graphs share one pool of memory: only one of them runs at a time."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.inference_mode():
            run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(graph, pool=self._graph_pool):
            result = run()
        self._graph_pool = graph.pool()

        return _Replay(graph, run, result)

    def start_copy(self, tensor: Tensor) -> HostCopy:
        """See `Device`."""
        free = self._free_buffers.setdefault((tensor.shape, tensor.dtype), [])
        buffer = free.pop() if free else self.host_buffer(tuple(tensor.shape), tensor.dtype)
        buffer.copy_(tensor, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return _PinnedCopy(buffer, event, free)


class _Replay(Generic[T]):
    """A captured graph.

    Args:
        graph: The graph.
        run: What was captured; it is kept, since it holds tensors that the graph reads and writes.
        result: What it returned.
    """

    def __init__(self, graph: torch.cuda.CUDAGraph, run: Callable[[], T], result: T) -> None:
        self._graph, self._run, self._result = graph, run, result

    def __call__(self) -> T:
        self._graph.replay()
        return self._result


class _EventTimer:
    """See `Timer` and `StoppedTimer`."""

    def __init__(self) -> None:
        self._begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._begin.record()

    def stop(self) -> "_EventTimer":
        """See `Timer`."""
        self._end.record()
        return self

    def seconds(self) -> float:
        """See `StoppedTimer`."""
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) / 1000


class _PinnedCopy:
    """See `HostCopy`.

    Args:
        buffer: Where the values arrive.
        event: Comes when they have.
        free: Where the buffer goes afterwards.
    """

    def __init__(self, buffer: Tensor, event: torch.cuda.Event, free: list[Tensor]) -> None:
        self._buffer, self._event, self._free = buffer, event, free

    def wait(self) -> NDArray[Any]:
        """See `HostCopy`."""
        self._event.synchronize()
        values: NDArray[Any] = self._buffer.numpy().copy()
        self._free.append(self._buffer)
        return values
