"""A CUDA GPU as a device."""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.config_values import cache_folder
from sgl_runtime.device.base import Device, HostCopy, T, cuda_refusal
from sgl_runtime.device.cublas_lt import LIBRARY_TYPES, BoundProduct, CublasLt
from sgl_runtime.device.file_reader import PIECE_BYTES, FileReader
from sgl_runtime.device.gated_products import GatedProducts
from sgl_runtime.device.kernels.logprobs import logprobs
from sgl_runtime.device.kernels.matvec import matvec
from sgl_runtime.device.kernels.norm import rms_norm, silu_and_mul
from sgl_runtime.device.kernels.sampling import draw, mask_logits
from sgl_runtime.device.kernels_ahead import KernelsAhead
from sgl_runtime.device.native_library import LibraryError
from sgl_runtime.device.ops import Norm, Ops
from sgl_runtime.device.rehearsal_device import RehearsalDevice
from sgl_runtime.device.tuned_products import Matrix, TunedProducts, Use, device_timer
from sgl_runtime.errors import ConfigError

logger = logging.getLogger(__name__)

NUM_LANES = 8
"""Threads that read weights: together they read as fast as the device takes data, where files are in memory."""


class CudaOps(Ops):
    """Ops as Triton kernels; products of several rows are the vendor's library's.

    Args:
        products: The library's algorithms that are faster than its own choice; None: its own choice is taken.
        gated: Gated linears of many rows as one kernel; None: they are a product and a kernel behind it.
    """

    def __init__(self, products: TunedProducts | None, gated: GatedProducts | None = None) -> None:
        self._products = products
        self._gated = gated
        self._weights: dict[Matrix, list[Tensor]] = defaultdict(list)
        # What a rehearsal did with matrices of their shapes.
        self._uses: set[Use] = set()

    def pack_weight(self, weight: Tensor) -> Tensor:
        """See `Ops.pack_weight`; the weight itself."""
        if not weight.is_meta:
            self._weights[weight.shape[0], weight.shape[1]].append(weight)
        return weight

    def tune_linears(self, row_counts: Sequence[int]) -> None:
        """See `Ops.tune_linears`."""
        weights = {
            (matrix, adds): some
            for matrix, adds in sorted(self._uses)
            if (some := self._weights.get(matrix)) and some[0].dtype in LIBRARY_TYPES and some[0].is_contiguous()
        }
        if self._products is not None and weights:
            self._products.tune(weights, row_counts, timer=device_timer)
        self._weights.clear()

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `Ops.linear`."""
        if x.shape[0] == 1:
            return matvec(x, weight, bias)
        product = self._tuned(x, weight, adds=False)
        if product is None:
            return super().linear(x, weight, bias)
        out = torch.empty((x.shape[0], weight.shape[0]), dtype=x.dtype, device=x.device)
        product.run(x, weight, out)
        return out if bias is None else out.add_(bias)

    def _tuned(self, x: Tensor, weight: Tensor, *, adds: bool) -> BoundProduct | None:
        if x.is_meta:
            self._uses.add(((weight.shape[0], weight.shape[1]), adds))
        if self._products is None or not (x.is_cuda and x.is_contiguous() and x.data_ptr() % 16 == 0):
            return None
        return self._products.find(x.shape[0], weight, adds=adds)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `Ops.rms_norm`."""
        return rms_norm(x, weight, eps)

    def norm_linear(self, x: Tensor, norm: Norm, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `Ops.norm_linear`."""
        if x.shape[0] == 1:
            return matvec(x, weight, bias, norm=norm)
        return super().norm_linear(x, norm, weight, bias)

    def gated_linear(self, x: Tensor, norm: Norm, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `Ops.gated_linear`."""
        if x.shape[0] == 1:
            return matvec(x, weight, bias, norm=norm, gated=True)
        if self._gated is None or bias is not None:
            return super().gated_linear(x, norm, weight, bias)
        normed = self.rms_norm(x, *norm)
        try:
            if x.is_meta:
                self._gated.begin_compiling(weight)
            elif self._gated.takes(normed, weight):
                return self._gated.run(normed, weight)
        except LibraryError as error:
            logger.warning("gated linears are two kernels each from now on: %s", error)
            self._gated = None
        return self.silu_and_mul(self.linear(normed, weight))

    def add_linear(self, residual: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """See `Ops.add_linear`; `residual` is overwritten with the sum."""
        if x.shape[0] == 1:
            return matvec(x, weight, bias, residual=residual)
        product = self._tuned(x, weight, adds=True)
        if product is None:
            residual.addmm_(x, weight.t())
        else:
            product.run(x, weight, residual)
        return residual if bias is None else residual.add_(bias)

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

    def logprobs(self, logits: Tensor, ids: Tensor) -> Tensor:
        """See `Ops.logprobs`."""
        return logprobs(logits, ids)


def _tuned_products(device: torch.device) -> TunedProducts | None:
    try:
        library = CublasLt(device)
    except LibraryError as error:
        logger.info("matrix products are not tuned: %s", error)
        return None
    name = torch.cuda.get_device_name(device)
    return TunedProducts(library, folder=cache_folder() / "products", device_name=name)


def _gated_products(device: torch.device) -> GatedProducts | None:
    try:
        return GatedProducts(device, folder=cache_folder() / "products")
    except LibraryError as error:
        logger.info("gated linears are two kernels each: %s", error)
        return None


class CudaDevice:
    """See `Device`.

    Args:
        num_threads: Threads for tensor work on the host; all cores by default.
        deterministic: Refused: it is not built for this device.

    Raises:
        ConfigError: there is no such device, or an option does not go with it.
    """

    def __init__(self, *, num_threads: int | None, deterministic: bool = False) -> None:
        if (refusal := cuda_refusal()) is not None:
            raise ConfigError(f"device is cuda, and {refusal}; use device cpu")
        if deterministic:
            raise ConfigError("enable_deterministic_inference is true; with device cuda it must be false")
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        self.ops: Ops = CudaOps(_tuned_products(self.torch_device), _gated_products(self.torch_device))
        self.attention_backends: tuple[str, ...] = ("flashinfer", "triton", "reference", "invariant")
        self.sampling_backends: tuple[str, ...] = ("triton", "pytorch", "flashinfer")
        self.default_dtype = torch.bfloat16
        self.default_mem_fraction = 0.85
        self.slot_limit: int | None = None
        self.runs_beside_host = True
        self.makes_masks = True
        self._graph_pool = torch.cuda.graph_pool_handle()
        self._capture_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._free_buffers: dict[tuple[torch.Size, torch.dtype], list[Tensor]] = {}
        if num_threads is not None:
            torch.set_num_threads(num_threads)

    def free_memory_bytes(self) -> int:
        """See `Device`."""
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self.torch_device)[0])

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """See `Device`.

        By way of memory that is pinned: the copy of more than 64 KB from any other waits for all work under way.
        """
        values = torch.from_numpy(np.ascontiguousarray(array))
        staged = torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values)
        return staged.to(self.torch_device, non_blocking=True)

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """See `Device`."""
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def file_reader(self) -> FileReader:
        """See `Device`; each thread has a stream of its own."""
        lanes = [_PinnedLane(self.host_buffer((PIECE_BYTES,), torch.uint8)) for _ in range(NUM_LANES)]
        begin_thread = partial(torch.cuda.set_device, self.torch_device)
        return FileReader(lanes, device=self.torch_device, mark=_recorded_event, begin_thread=begin_thread)

    def to_host(self, tensor: Tensor) -> NDArray[Any]:
        """See `Device`."""
        values: NDArray[Any] = tensor.cpu().numpy()
        return values

    def start_timer(self) -> "_EventTimer":
        """See `Device`."""
        return _EventTimer()

    def capture(self, run: Callable[[], T]) -> Callable[[], T]:
        """See `Device`; a CUDA graph.  All graphs share one pool of memory: only one of them runs at a time."""
        stream = self._capture_stream
        stream.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        # Not through `torch.cuda.graph`, which gives all memory that is free back to the driver first, each time: the
        # run before would have to ask for it again.
        with torch.cuda.stream(stream), torch.inference_mode():
            # Libraries pick and load what they launch at the first call of each shape.
            run()
            torch.cuda.synchronize()
            # What other threads of the process do meanwhile, such as to allocate, does not end the capture.
            graph.capture_begin(pool=self._graph_pool, capture_error_mode="thread_local")
            try:
                result = run()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        return _Replay(graph, run, result)

    def compile_ahead(self, launch: Callable[[Device], None]) -> Callable[[], None]:
        """See `Device`; Triton's kernels."""
        begin_thread = partial(torch.cuda.set_device, self.torch_device)
        return KernelsAhead(partial(launch, RehearsalDevice(self)), begin_thread=begin_thread).wait

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


def _recorded_event() -> torch.cuda.Event:
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


class _PinnedLane:
    """See `Lane`.

    Args:
        buffer: Pinned.
    """

    def __init__(self, buffer: Tensor) -> None:
        self.buffer = buffer
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def send(self, target: Tensor, after: torch.cuda.Event) -> None:
        """See `Lane`."""
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(after)
            target.copy_(self.buffer[: len(target)], non_blocking=True)
        self._stream.synchronize()


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
