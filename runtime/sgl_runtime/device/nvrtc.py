"""NVIDIA's compiler of CUDA C++ as a library: torch brings it, so that no toolkit need be installed.

For kernels that Triton has no words for, such as those whose clusters of blocks share what they load.

Source: NVIDIA's NVRTC, whose names these are.
"""

import ctypes
import hashlib
import logging
import os
import tempfile
from pathlib import Path

import torch

from sgl_runtime.device.cublas_lt import LibraryError

logger = logging.getLogger(__name__)


class Nvrtc:
    """The compiler.

    Args:
        folder: Where what was compiled is kept.
        architecture: Of the chip, such as `sm_90a`.

    Raises:
        LibraryError: it is not there.
    """

    def __init__(self, folder: Path, architecture: str) -> None:
        self._folder, self._architecture = folder, architecture
        self._functions = _load()
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self._version = f"{major.value}.{minor.value}"

    def compile(self, source: str) -> bytes:
        """Code for the chip; what an earlier start compiled is taken again.

        Args:
            source: CUDA C++ that includes nothing.

        Raises:
            LibraryError: it cannot be compiled.
        """
        facts = f"{self._version} {self._architecture} {source}"
        path = self._folder / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.cubin"
        try:
            return path.read_bytes()
        except OSError:
            code = self._compile(source)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(code)
            os.replace(file.name, path)
        except OSError as error:
            logger.warning("compiled CUDA is not kept path=%s error=%s", path, error)
        return code

    def _compile(self, source: str) -> bytes:
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        options = (f"--gpu-architecture={self._architecture}".encode(), b"--std=c++17")
        try:
            status = self._functions.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * 2)(*options))
            if status:
                log = self._text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0\n")
                raise LibraryError(f"CUDA C++ cannot be compiled (status {status}): {log.decode(errors='replace')}")
            return self._text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, size_name: str, name: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(size_name, program, ctypes.byref(size))
        found = ctypes.create_string_buffer(size.value)
        self._call(name, program, found)
        return found.raw

    def _call(self, name: str, *args: object) -> None:
        status = getattr(self._functions, name)(*args)
        if status:
            raise LibraryError(f"{name} failed with status {status}")


def _load() -> ctypes.CDLL:
    major = (torch.version.cuda or "0").split(".")[0]
    # The library stands where torch's own part that uses it looks for it.
    stub = Path(torch.__file__).parent / "lib" / "libcaffe2_nvrtc.so"
    try:
        if stub.is_file():
            ctypes.CDLL(str(stub))
        return ctypes.CDLL(f"libnvrtc.so.{major}")
    except OSError as error:
        raise LibraryError(f"NVRTC of CUDA {major} cannot be loaded: {error}") from error
