"""Functions of compiled CUDA C++, and descriptions of the tensors whose tiles they load: the driver, called directly.

Source: NVIDIA's driver API, whose names and numbers the constants here are.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from sgl_runtime.device.native_library import NativeLibrary

_TENSOR_MAP_BYTES, _TENSOR_MAP_ALIGNMENT = 128, 64

_MAX_DYNAMIC_SHARED_BYTES = 8
_LAUNCH_EARLY = 6
"""Attribute of a launch: it may begin while the kernel in front of it still runs."""

_MAP_TYPES = {torch.float16: 6, torch.bfloat16: 9}
_SWIZZLE_128, _PROMOTE_256 = 3, 3

_SWIZZLED_BYTES = 128
"""Bytes of a tile's row: what is swizzled together in shared memory."""

Argument = ctypes.c_uint64 | ctypes.c_int
"""A pointer or a number."""


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", ctypes.c_uint),
    )


def open_driver() -> NativeLibrary:
    """The driver that torch uses.

    Raises:
        LibraryError: it is not there.
    """
    return NativeLibrary("libcuda.so.1", "the CUDA driver")


class TensorMap:
    """How tiles of a matrix are loaded.

    Args:
        driver: The driver.
        matrix: (N, K) of 16 bit, with rows of a multiple of 16 bytes.
        rows: Of a tile; its columns are as many as are swizzled together.
    """

    def __init__(self, driver: NativeLibrary, matrix: Tensor, rows: int) -> None:
        self._memory = ctypes.create_string_buffer(_TENSOR_MAP_BYTES + _TENSOR_MAP_ALIGNMENT)
        begin = ctypes.addressof(self._memory)
        self.address = -(-begin // _TENSOR_MAP_ALIGNMENT) * _TENSOR_MAP_ALIGNMENT
        size = matrix.element_size()
        driver.call(
            "cuTensorMapEncodeTiled", ctypes.c_void_p(self.address), _MAP_TYPES[matrix.dtype], 2,
            ctypes.c_void_p(matrix.data_ptr()), (ctypes.c_uint64 * 2)(matrix.shape[1], matrix.shape[0]),
            (ctypes.c_uint64 * 1)(matrix.stride(0) * size), (ctypes.c_uint32 * 2)(_SWIZZLED_BYTES // size, rows),
            (ctypes.c_uint32 * 2)(1, 1), 0, _SWIZZLE_128, _PROMOTE_256, 0,
        )  # fmt: skip


class CudaFunction:
    """A function that can be launched.

    Args:
        driver: The driver.
        code: What holds it, compiled.
        name: Its name.
        num_threads: Of a block.
        shared_bytes: Dynamic shared memory of a block.

    Raises:
        LibraryError: the code cannot be loaded.
    """

    def __init__(self, driver: NativeLibrary, code: bytes, name: str, *, num_threads: int, shared_bytes: int) -> None:
        self._driver, self._num_threads, self._shared_bytes = driver, num_threads, shared_bytes
        module = ctypes.c_void_p()
        driver.call("cuModuleLoadData", ctypes.byref(module), code)
        self._function = ctypes.c_void_p()
        driver.call("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())
        driver.call("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED_BYTES, shared_bytes)

    def launch(self, num_blocks: int, maps: Sequence[TensorMap], args: Sequence[Argument]) -> None:
        """Launch it, on the stream in use; it may begin before the kernel in front of it has ended.

        Args:
            num_blocks: How many.
            maps: Its first arguments.
            args: Its others.

        Raises:
            LibraryError: it cannot be launched.
        """
        addresses = [*(each.address for each in maps), *(ctypes.addressof(each) for each in args)]
        attribute = _Attribute(_LAUNCH_EARLY)
        attribute.value[0] = 1
        config = _Config(
            (num_blocks, 1, 1), (self._num_threads, 1, 1), self._shared_bytes,
            torch.cuda.current_stream().cuda_stream, ctypes.pointer(attribute), 1,
        )  # fmt: skip
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        self._driver.call("cuLaunchKernelEx", ctypes.byref(config), self._function, pointers, None)
