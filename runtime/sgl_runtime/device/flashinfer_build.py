"""FlashInferModule: a module of FlashInfer that a process of low priority compiles beside the server, if need be."""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from enum import Enum, auto
from pathlib import Path
from threading import Thread
from typing import IO

import psutil

import sgl_runtime
from sgl_runtime.device.flashinfer_library import ModuleRequest, is_built, jit_spec

logger = logging.getLogger(__name__)

_NICENESS = 19
"""Serving goes before compiling."""

_EXIT_TIMEOUT_S = 5.0

# The child finds this package where it is, and does not run the main module of whoever starts it.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from sgl_runtime.device.flashinfer_build import main;"
    " main(sys.argv[2])"
)


class ModuleState(Enum):
    """How far a module is."""

    BUILDING = auto()
    READY = auto()
    FAILED = auto()


class FlashInferModule:
    """One module; those who use it ask `is_ready` before each use, and take something else until it says yes.

    Args:
        request: Which module.
        instead: What is used meanwhile, for the log.
    """

    def __init__(self, request: ModuleRequest, *, instead: str) -> None:
        self._request, self._instead = request, instead
        self._begin = time.monotonic()
        self._process: BuildProcess | None = None
        if is_built(jit_spec(request)):
            self._state = ModuleState.READY
        else:
            self._state = ModuleState.BUILDING
            self._process = BuildProcess(request)
            logger.info("compiling kernels of flashinfer module=%s meanwhile=%s", request.kind, instead)

    @property
    def request(self) -> ModuleRequest:
        """Which module it is."""
        return self._request

    def is_ready(self) -> bool:
        """Whether the module can be loaded, which takes no compilation then."""
        if self._state is ModuleState.BUILDING:
            self._look()
        return self._state is ModuleState.READY

    def _look(self) -> None:
        """See whether the compilation is over."""
        assert self._process is not None
        if not self._process.is_over():
            return
        failure = self._process.failure()
        self._process = None
        if failure is None:
            self._state = ModuleState.READY
            seconds = time.monotonic() - self._begin
            logger.info("compiled kernels of flashinfer module=%s seconds=%.0f", self._request.kind, seconds)
        else:
            self._state = ModuleState.FAILED
            logger.warning(
                "kernels of flashinfer cannot be compiled module=%s used_instead=%s error=%s",
                self._request.kind,
                self._instead,
                failure,
            )


class BuildProcess:
    """A process that compiles a module and ends with its owner: it watches the other end of a pipe.

    Args:
        request: Which module.
    """

    def __init__(self, request: ModuleRequest) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        root = str(Path(sgl_runtime.__file__).parents[1])
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, root, request.encode()],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        self._end = weakref.finalize(self, _end, self._process, self._output)

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def failure(self) -> str | None:
        """What went wrong, in a line; None: nothing.  Asked for once it is over."""
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        code = self._process.returncode
        self._end()
        if code == 0:
            return None
        return lines[-1] if lines else f"the process ended with code {code}"


def _end(process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    output.close()


def main(text: str) -> None:
    """Compile a module; what a `BuildProcess` runs.

    Args:
        text: A `ModuleRequest`, encoded.
    """
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_owner, name="owner watch", daemon=True).start()
    jit_spec(ModuleRequest.decode(text)).build(verbose=False)


def _end_with_owner() -> None:
    """Wait for the end of the pipe, then end the compilers and this process."""
    # Not through `sys.stdin`, whose lock would still be held when the interpreter ends.
    os.read(0, 1)
    # ninja takes back what is half written when it is asked to end, and ends what it started.
    compilers = psutil.Process().children(recursive=True)
    for process in compilers:
        _terminate(process)
    _, alive = psutil.wait_procs(compilers, timeout=_EXIT_TIMEOUT_S / 2)
    for process in alive:
        process.kill()
    os._exit(1)


def _terminate(process: psutil.Process) -> None:
    try:
        process.terminate()
    except psutil.NoSuchProcess:
        return
