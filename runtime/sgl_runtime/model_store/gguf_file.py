"""GgufFile: metadata and tensors of one GGUF file, dequantised on request."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from sgl_runtime.errors import ModelLoadError


class GgufFile:
    """A memory-mapped GGUF file.

    Args:
        path: The file.

    Raises:
        ModelLoadError: it is no GGUF file, or it is cut short.

    Source: the GGUF specification, version 3; parsing and block formats by the `gguf` package.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._reader = gguf.GGUFReader(path)
        except (ValueError, IndexError, KeyError, OverflowError, OSError, UnicodeDecodeError) as error:
            raise ModelLoadError(f"{path} is not a whole GGUF file: {error}") from error
        size_bytes = path.stat().st_size
        for tensor in self._reader.tensors:
            end = int(tensor.data_offset) + int(tensor.n_bytes)
            if end > size_bytes:
                raise ModelLoadError(
                    f"{path} is cut short: tensor {tensor.name} ends at byte {end}, the file has {size_bytes}"
                )

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value as plain Python (numbers, strings, lists), or the default."""
        field = self._reader.fields.get(key)
        return default if field is None else field.contents()

    def require(self, key: str) -> Any:
        """A metadata value that must be there."""
        value = self.get(key)
        if value is None:
            raise ModelLoadError(f"{self.path} has no metadata {key!r}")
        return value

    def tensor_names(self) -> set[str]:
        """Names of all tensors."""
        return {tensor.name for tensor in self._reader.tensors}

    def tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Every tensor by name, dequantised to float32, shape in torch order (rows first)."""
        for tensor in self._reader.tensors:
            try:
                data = gguf.dequantize(tensor.data, tensor.tensor_type)
            except NotImplementedError as error:
                raise ModelLoadError(
                    f"{self.path}: tensor {tensor.name} has type {tensor.tensor_type.name}, which is not supported"
                ) from error
            shape = tuple(int(size) for size in reversed(tensor.shape))
            yield tensor.name, np.asarray(data, dtype=np.float32).reshape(shape)
