"""The vendor's library of matrix products, called directly, so that one of its algorithms can be chosen.

torch takes what the library's heuristics name first for a shape.  Among those that they name for shapes like it there
is often one that is a tenth faster (`tuned_products.py`).

Source: NVIDIA's cuBLASLt, whose names and numbers the constants here are.
"""

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sgl_runtime.device.native_library import LibraryError, NativeLibrary

WORKSPACE_BYTES = 64 << 20
"""Memory that an algorithm may use; one product runs at a time."""

ALGORITHM_BYTES = 64

_COMPUTE_32F, _REAL_32F = 68, 0
LIBRARY_TYPES = {torch.bfloat16: 14, torch.float16: 2}
"""Types that products are known for here, and the library's numbers for them."""
_DESC_TRANSPOSE_A, _TRANSPOSED = 3, 1
_PREF_WORKSPACE = 1

_Algorithm = ctypes.c_uint64 * (ALGORITHM_BYTES // 8)


class _Heuristic(ctypes.Structure):
    _fields_ = (
        ("algorithm", _Algorithm),
        ("workspace_size", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class ProductShape(NamedTuple):
    """What a product is chosen by.

    Attributes:
        rows, outputs, inputs: (rows, inputs) times the transpose of (outputs, inputs).
        adds: Whether the result is added to what the output holds.
        dtype: Of all of them.
    """

    rows: int
    outputs: int
    inputs: int
    adds: bool
    dtype: torch.dtype


class CublasLt(NativeLibrary):
    """The library, with memory for what it needs meanwhile.

    Args:
        device: The GPU.

    Raises:
        LibraryError: it is not there.
    """

    def __init__(self, device: torch.device) -> None:
        major = (torch.version.cuda or "0").split(".")[0]
        super().__init__(f"libcublasLt.so.{major}", f"cuBLASLt of CUDA {major}")
        self.functions.cublasLtGetVersion.restype = ctypes.c_size_t
        self.version = int(self.functions.cublasLtGetVersion())
        self.handle = ctypes.c_void_p()
        self.call("cublasLtCreate", ctypes.byref(self.handle))
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)

    def product(self, shape: ProductShape) -> "Product":
        """A product of this shape."""
        return Product(self, shape)


class Product:
    """All products of one shape.

    The library counts columns first: a (T, O) result of rows is its (O, T) result of columns, of the weight, which it
    transposes, and x, which it takes as it is.

    Args:
        library: The library.
        shape: The shape.
    """

    def __init__(self, library: CublasLt, shape: ProductShape) -> None:
        self._library, self._shape = library, shape
        self._description = ctypes.c_void_p()
        library.call("cublasLtMatmulDescCreate", ctypes.byref(self._description), _COMPUTE_32F, _REAL_32F)
        transposed = ctypes.c_int(_TRANSPOSED)
        library.call(
            "cublasLtMatmulDescSetAttribute", self._description, _DESC_TRANSPOSE_A, ctypes.byref(transposed), 4
        )
        self._weight = self._layout(shape.inputs, shape.outputs)
        self._x = self._layout(shape.inputs, shape.rows)
        self._out = self._layout(shape.outputs, shape.rows)
        self._one, self._beta = ctypes.c_float(1.0), ctypes.c_float(1.0 if shape.adds else 0.0)

    def candidates(self, count: int = 16) -> list[bytes]:
        """Algorithms that the heuristics name, best first; empty where they know none."""
        preference = ctypes.c_void_p()
        self._library.call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        limit = ctypes.c_uint64(WORKSPACE_BYTES)
        self._library.call(
            "cublasLtMatmulPreferenceSetAttribute", preference, _PREF_WORKSPACE, ctypes.byref(limit), ctypes.c_size_t(8)
        )
        found, num_found = (_Heuristic * count)(), ctypes.c_int()
        status = self._library.functions.cublasLtMatmulAlgoGetHeuristic(
            self._library.handle, self._description, self._weight, self._x, self._out, self._out, preference,
            count, found, ctypes.byref(num_found),
        )  # fmt: skip
        self._library.call("cublasLtMatmulPreferenceDestroy", preference)
        return [bytes(found[i].algorithm) for i in range(num_found.value) if not found[i].state] if not status else []

    def accepts(self, algorithm: bytes) -> bool:
        """Whether an algorithm that was named for another shape does this one, in the memory there is."""
        result = _Heuristic()
        status = self._library.functions.cublasLtMatmulAlgoCheck(
            self._library.handle, self._description, self._weight, self._x, self._out, self._out,
            ctypes.byref(_Algorithm.from_buffer_copy(algorithm)), ctypes.byref(result),
        )  # fmt: skip
        return not status and result.workspace_size <= WORKSPACE_BYTES

    def bind(self, algorithm: bytes) -> "BoundProduct":
        """The product by one algorithm."""
        chosen = _Algorithm.from_buffer_copy(algorithm)
        return BoundProduct(
            self._library,
            head=(self._library.handle, self._description, ctypes.byref(self._one)),
            layouts=(self._weight, self._x, self._out),
            tail=(ctypes.byref(self._beta), ctypes.byref(chosen)),
            keeps=(self, chosen),
        )

    def _layout(self, rows: int, columns: int) -> ctypes.c_void_p:
        layout = ctypes.c_void_p()
        self._library.call(
            "cublasLtMatrixLayoutCreate", ctypes.byref(layout), LIBRARY_TYPES[self._shape.dtype], ctypes.c_uint64(rows),
            ctypes.c_uint64(columns), ctypes.c_int64(rows),
        )  # fmt: skip
        return layout


class BoundProduct:
    """A product of one shape by one algorithm.

    Args:
        library: The library.
        head: Handle, description, and the factor of the product.
        layouts: Of weight, x and output.
        tail: The factor of what the output holds, and the algorithm.
        keeps: What the arguments point into.
    """

    def __init__(
        self,
        library: CublasLt,
        *,
        head: tuple[object, ...],
        layouts: tuple[object, object, object],
        tail: tuple[object, object],
        keeps: Sequence[object],
    ) -> None:
        self._function = library.functions.cublasLtMatmul
        self._head = head
        self._weight, self._x, self._out = layouts
        self._beta, self._algorithm = tail
        self._workspace = ctypes.c_void_p(library.workspace.data_ptr())
        self._workspace_size = ctypes.c_size_t(WORKSPACE_BYTES)
        self._keeps = keeps

    def run(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """Compute, or add, into `out`, on the stream in use.

        Args:
            x: (T, I), contiguous.
            weight: (O, I), contiguous.
            out: (T, O), contiguous.

        Raises:
            LibraryError: the library refused.
        """
        target = ctypes.c_void_p(out.data_ptr())
        status = self._function(
            *self._head, ctypes.c_void_p(weight.data_ptr()), self._weight, ctypes.c_void_p(x.data_ptr()), self._x,
            self._beta, target, self._out, target, self._out, self._algorithm, self._workspace, self._workspace_size,
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )  # fmt: skip
        if status:
            raise LibraryError(f"cublasLtMatmul failed with status {status}")
