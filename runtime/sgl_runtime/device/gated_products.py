"""GatedProducts: a gated linear of many rows as one kernel, where the GPU is a Hopper.

The vendor's product writes both halves, which a kernel of its own then reads to make one of them: of memory, four times
what the result needs.  Here the result leaves the product's registers.  The kernel is as fast as the vendor's product
alone (`benchmarks/gated_products.py`), at numbers of rows that fill its tiles.
"""

import ctypes
import functools
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from sgl_runtime.device.cuda_function import CudaFunction, TensorMap, open_driver
from sgl_runtime.device.native_library import LibraryError
from sgl_runtime.device.nvrtc import Nvrtc

TILE_ROWS = 256
"""Rows of a tile, which two blocks compute together."""

TILE_OUTS = (256, 224, 192, 128, 96)
"""Rows of the weight in a tile, of which there is a kernel for each."""

FILLED = 0.96
"""Share of the rows of the tiles that must be there: the vendor has smaller tiles."""

MANY_TILES = 8
"""Tiles above each other from which on the widest are taken."""

_COMPILING = 2
"""Threads that compile."""

_CAPABILITY = (9, 0)
_INPUTS = 64
_BLOCK_ROWS, _GROUP_ROWS, _NUM_THREADS = 128, 64, 384
_STAGES = {256: 4, 224: 4, 192: 5, 128: 6, 96: 6}
"""Pieces on their way, as many as fit, by the width of a tile."""

_TILES_THAT_SHARE = 8
_OVERHEAD = 16
"""What a tile takes beside its products, in rows of the weight."""

_TYPES = {torch.bfloat16: "bf16", torch.float16: "f16"}
_ALIGNMENT = 16


class _Variant(NamedTuple):
    """A kernel.

    Attributes:
        outs: Rows of the weight in a tile.
        dtype: Of weight, input and result.
    """

    outs: int
    dtype: torch.dtype


class GatedProducts:
    """See the module.

    Args:
        device: The GPU.
        folder: Where what was compiled is kept.

    Raises:
        LibraryError: there are none for this GPU, or what compiles or launches them is not there.
    """

    def __init__(self, device: torch.device, *, folder: Path) -> None:
        properties = torch.cuda.get_device_properties(device)
        if (properties.major, properties.minor) != _CAPABILITY:
            found = f"{properties.major}.{properties.minor}"
            raise LibraryError(f"they are written for compute capability 9.0, and this GPU has {found}")
        self._num_clusters = properties.multi_processor_count // 2
        self._compiler = Nvrtc(folder, "sm_90a")
        self._driver = open_driver()
        self._threads = ThreadPoolExecutor(_COMPILING, "sgl products")
        self._codes: dict[_Variant, Future[bytes]] = {}
        self._functions: dict[_Variant, CudaFunction] = {}
        self._weight_maps: dict[tuple[int, torch.Size, _Variant], TensorMap] = {}

    def begin_compiling(self, weight: Tensor) -> None:
        """Compile what products of a weight need, in threads; the first product waits for it.

        Args:
            weight: (2 O, I); it needs no memory.
        """
        if _fits(weight):
            for row_tiles in range(1, MANY_TILES + 1):
                self._code(self._variant(row_tiles, weight))

    def takes(self, x: Tensor, weight: Tensor) -> bool:
        """Whether a product is best computed here.

        Args:
            x: (T, I).
            weight: (2 O, I).
        """
        row_tiles = -(-x.shape[0] // TILE_ROWS)
        return (
            x.is_cuda
            and x.shape[0] >= FILLED * TILE_ROWS * row_tiles
            and x.is_contiguous()
            and x.data_ptr() % _ALIGNMENT == 0
            and x.dtype == weight.dtype
            and _fits(weight)
        )

    def run(self, x: Tensor, weight: Tensor) -> Tensor:
        """SiLU of the first half of the product of x and the transposed weight, times its second half.

        Args:
            x: (T, I) that `takes` accepts.
            weight: (2 O, I).

        Returns:
            (T, O).

        Raises:
            LibraryError: the kernel cannot be compiled or launched.
        """
        num_rows, (num_outs, num_inputs) = x.shape[0], weight.shape
        row_tiles = -(-num_rows // TILE_ROWS)
        variant = self._variant(row_tiles, weight)
        function = self._functions.get(variant)
        if function is None:
            function = self._functions[variant] = self._load(variant)
        out = torch.empty(num_rows, num_outs // 2, dtype=x.dtype, device=x.device)
        num_tiles = row_tiles * -(-num_outs // variant.outs)
        function.launch(
            2 * min(self._num_clusters, num_tiles),
            [TensorMap(self._driver, x, _BLOCK_ROWS), self._weight_map(weight, variant)],
            [ctypes.c_uint64(out.data_ptr()), *map(ctypes.c_int, (num_rows, num_outs // 2, num_inputs))],
        )
        return out

    def _variant(self, row_tiles: int, weight: Tensor) -> _Variant:
        return _Variant(tile_outs(row_tiles, weight.shape[0], self._num_clusters), weight.dtype)

    def _weight_map(self, weight: Tensor, variant: _Variant) -> TensorMap:
        key = (weight.data_ptr(), weight.shape, variant)
        known = self._weight_maps.get(key)
        if known is None:
            known = self._weight_maps[key] = TensorMap(self._driver, weight, variant.outs // 2)
        return known

    def _code(self, variant: _Variant) -> "Future[bytes]":
        known = self._codes.get(variant)
        if known is None:
            known = self._codes[variant] = self._threads.submit(self._compiler.compile, _source(variant))
        return known

    def _load(self, variant: _Variant) -> CudaFunction:
        code, shared_bytes = self._code(variant).result(), _shared_bytes(variant.outs)
        return CudaFunction(self._driver, code, "gated_product", num_threads=_NUM_THREADS, shared_bytes=shared_bytes)


def tile_outs(row_tiles: int, num_outs: int, num_clusters: int) -> int:
    """The width of tiles with which all clusters are busy for the shortest time; the largest, of very many tiles.

    Args:
        row_tiles: Tiles above each other.
        num_outs: Rows of the weight.
        num_clusters: How many tiles are computed at a time.
    """
    if row_tiles >= MANY_TILES:
        return TILE_OUTS[0]

    def seconds(outs: int) -> int:
        num_turns = -(-row_tiles * -(-num_outs // outs) // num_clusters)
        return num_turns * (outs + _OVERHEAD)

    return min(TILE_OUTS, key=seconds)


def _fits(weight: Tensor) -> bool:
    num_outs, num_inputs = weight.shape
    return (
        weight.dtype in _TYPES
        and weight.is_contiguous()
        and num_outs % (_ALIGNMENT * 2) == 0
        and num_inputs % _INPUTS == 0
    )


def _shared_bytes(outs: int) -> int:
    """See the kernel: pieces of x and of the weight, results of both groups, and barriers."""
    piece = (_BLOCK_ROWS + outs) * _INPUTS * 2
    return _STAGES[outs] * (piece + 16) + 2 * _GROUP_ROWS * (outs + 16)


def _source(variant: _Variant) -> str:
    """The kernel with what it is built with."""
    outs, name = variant.outs, _TYPES[variant.dtype]
    count = outs // 2
    registers = ", ".join(f"%{index}" for index in range(count))
    operands = ", ".join(f'"+f"(d[{index}])' for index in range(count))
    multiply = (
        f'asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"'
        f' "wgmma.mma_async.sync.aligned.m64n{outs}k16.f32.{name}.{name}'
        f' {{{registers}}}, %{count}, %{count + 1}, p, 1, 1, 0, 0;\\n}}"'
        f' : {operands} : "l"(x), "l"(w), "r"(adds))'
    )
    defined = {
        "OUTS": outs,
        "STAGES": _STAGES[outs],
        "GROUP": _TILES_THAT_SHARE,
        "CONVERT": f'"cvt.rn.{name}x2.f32"',
        "MULTIPLY(d, x, w, adds)": multiply,
        "WAIT(d)": f'asm volatile("wgmma.wait_group.sync.aligned 0;" : {operands} : : "memory")',
    }
    return "".join(f"#define {key} {value}\n" for key, value in defined.items()) + _kernel()


@functools.cache
def _kernel() -> str:
    return resources.files("sgl_runtime.device.kernels").joinpath("gated_product.cu").read_text(encoding="utf-8")
