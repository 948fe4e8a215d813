"""GgufFile: metadata and tensors of one GGUF file, dequantised on request."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.gguf_reader import READER_SUPPORTED_VERSIONS
from numpy.typing import NDArray

from sgl_runtime.errors import ModelLoadError

_MAGIC = b"GGUF"
# What the reader raises on bytes that are no metadata: it checks few of the sizes that it reads.
_READ_ERRORS = (ValueError, IndexError, KeyError, OverflowError, TypeError)


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
            with path.open("rb") as file:
                _check_start(path, file.read(8))
            self._reader = gguf.GGUFReader(path)
        except OSError as error:
            raise ModelLoadError(f"GGUF file {path} cannot be read: {error.strerror}") from error
        except _READ_ERRORS as error:
            size_bytes = path.stat().st_size
            raise ModelLoadError(
                f"GGUF file {path} is cut short or damaged: its {size_bytes} bytes end before what its header announces"
            ) from error

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value as plain Python (numbers, strings, lists), or the default.

        Raises:
            ModelLoadError: the value cannot be read.
        """
        field = self._reader.fields.get(key)
        try:
            return default if field is None else field.contents()
        except _READ_ERRORS as error:
            raise ModelLoadError(f"GGUF file {self.path} is damaged: metadata {key!r} cannot be read") from error

    def require(self, key: str) -> Any:
        """A metadata value that must be there."""
        value = self.get(key)
        if value is None:
            raise ModelLoadError(f"GGUF file {self.path} has no metadata {key!r}")
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


def _check_start(path: Path, start: bytes) -> None:
    if not start:
        raise ModelLoadError(f"GGUF file {path} is empty")
    if not start.startswith(_MAGIC[: len(start)]):
        raise ModelLoadError(f"{path} is no GGUF file: it begins with {start[:4]!r}, not with {_MAGIC!r}")
    # The byte order of the file is that of the reading which gives a small number.
    version = min(int.from_bytes(start[4:], "little"), int.from_bytes(start[4:], "big"))
    if len(start) == 8 and version not in READER_SUPPORTED_VERSIONS:
        known = ", ".join(map(str, sorted(READER_SUPPORTED_VERSIONS)))
        raise ModelLoadError(f"GGUF file {path} has version {version}; supported: {known}")
