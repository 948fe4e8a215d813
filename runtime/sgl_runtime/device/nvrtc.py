"""NVIDIA's compiler of CUDA C++ as a library: torch brings it, so that no toolkit need be installed.

For kernels that Triton has no words for, such as those whose clusters of blocks share what they load.

Source: NVIDIA's NVRTC, whose names these are.
"""

import ctypes
import hashlib
import logging
from pathlib import Path

import torch

from sgl_runtime.device.kept_file import keep_file
from sgl_runtime.device.native_library import LibraryError, NativeLibrary

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
        self._library = _load()
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
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
            keep_file(path, code)
        except OSError as error:
            logger.warning("compiled CUDA is not kept path=%s error=%s", path, error)
        return code

    def _compile(self, source: str) -> bytes:
        program = ctypes.c_void_p()
        self._library.call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        options = (f"--gpu-architecture={self._architecture}".encode(), b"--std=c++17")
        try:
            status = self._library.functions.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * 2)(*options))
            if status:
                log = self._text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0\n")
                raise LibraryError(f"CUDA C++ cannot be compiled (status {status}): {log.decode(errors='replace')}")
            return self._text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        finally:
            self._library.call("nvrtcDestroyProgram", ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, size_name: str, name: str) -> bytes:
        size = ctypes.c_size_t()
        self._library.call(size_name, program, ctypes.byref(size))
        found = ctypes.create_string_buffer(size.value)
        self._library.call(name, program, found)
        return found.raw


def _load() -> NativeLibrary:
    major = (torch.version.cuda or "0").split(".")[0]
    # The library stands where torch's own part that uses it looks for it.
    stub = Path(torch.__file__).parent / "lib" / "libcaffe2_nvrtc.so"
    title = f"NVRTC of CUDA {major}"
    if stub.is_file():
        NativeLibrary(str(stub), title)
    return NativeLibrary(f"libnvrtc.so.{major}", title)
