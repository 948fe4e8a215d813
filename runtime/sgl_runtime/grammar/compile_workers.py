"""CompileWorkers: the worker processes of a grammar compiler, started when there is work for them."""

import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock

import sgl_runtime
from sgl_runtime.errors import GrammarError, SglRuntimeError
from sgl_runtime.grammar.automaton_record import Record
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.budget import BudgetError
from sgl_runtime.grammar.frames import receive_frame, send_frame
from sgl_runtime.grammar.packed_arrays import pack, unpack
from sgl_runtime.grammar.worker_setup import GRACE_S, WorkerSetup

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 60.0
_EXIT_TIMEOUT_S = 2.0
# The child finds this package where it is, and does not run the main module of whoever starts it.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from sgl_runtime.grammar.compile_worker import main;"
    " main(int(sys.argv[2]))"
)


class CompileWorkers:
    """Runs compilations in processes of their own; used by several threads, each of which may have one process.

    Args:
        make_setup: What workers are told; asked for once there is work.
        timeout_s: Seconds that a compilation may take.
    """

    def __init__(self, make_setup: Callable[[], WorkerSetup], *, timeout_s: float) -> None:
        self._make_setup = make_setup
        self._timeout_s = timeout_s
        self._setup: bytes | None = None
        self._lock = Lock()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._is_closed = False

    def run(self, task: str, spec: GrammarSpec) -> Record:
        """Run a task of `WORKER_TASKS` and wait for it.

        Returns:
            What the task made.

        Raises:
            BudgetError: it takes too long or needs too much memory, or the workers are being closed.
            GrammarError: the spec is malformed or not supported; or it made the process crash.
            SglRuntimeError: no process can be started, or there is a mistake in this package.
        """
        worker = self._take()
        try:
            facts, arrays = worker.run(task, spec, timeout_s=self._timeout_s + GRACE_S)
        except (EOFError, OSError) as error:
            raise self._failure(worker, error) from None
        if "error" not in facts:
            self._give_back(worker)
            return facts, arrays
        # A process that ran out of memory has little left for others.
        (self._drop if facts["is_spent"] else self._give_back)(worker)
        raise (BudgetError if facts["is_budget"] else GrammarError)(facts["error"])

    def close(self) -> None:
        """End the processes; compilations that run fail."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            # The threads that wait for these close them.
            for worker in self._busy:
                worker.kill()
        for worker in idle:
            worker.end()

    def _take(self) -> "_Worker":
        with self._lock:
            if self._is_closed:
                raise _closed()
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive():
                    self._busy.add(worker)
                    return worker
                worker.end()
            if self._setup is None:
                self._setup = self._make_setup().packed()
        try:
            worker = _Worker()
        except OSError as error:
            raise SglRuntimeError(f"no process can be started to compile a grammar: {error}") from error
        with self._lock:
            self._busy.add(worker)
            is_closed = self._is_closed
        if is_closed:
            self._drop(worker)
            raise _closed()
        try:
            worker.set_up(self._setup)
        except (EOFError, OSError) as error:
            raise self._failure(worker, error) from None
        return worker

    def _give_back(self, worker: "_Worker") -> None:
        with self._lock:
            self._busy.discard(worker)
            if not self._is_closed:
                self._idle.append(worker)
                return
        worker.end()

    def _drop(self, worker: "_Worker") -> None:
        with self._lock:
            self._busy.discard(worker)
        worker.end()

    def _failure(self, worker: "_Worker", error: Exception) -> SglRuntimeError:
        """What to say about a process that gave no reply; it is ended."""
        if not isinstance(error, TimeoutError):
            worker.wait_for_exit()
        self._drop(worker)
        if self._is_closed:
            return _closed()
        if isinstance(error, TimeoutError):
            return BudgetError(f"compiling the grammar took longer than {self._timeout_s:g} seconds")
        code = worker.exit_code
        logger.warning("a process that compiled a grammar ended code=%s", code)
        if code is not None and code < 0:
            return GrammarError(f"compiling the grammar made its process end ({signal.Signals(-code).name})")
        return SglRuntimeError("compiling the grammar failed inside the server")


class _Worker:
    """One process and the channel to it."""

    def __init__(self) -> None:
        self._channel, other = socket.socketpair()
        with other:
            root = str(Path(sgl_runtime.__file__).resolve().parents[1])
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, root, str(other.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
            )

    @property
    def exit_code(self) -> int | None:
        """How the process ended."""
        return self._process.returncode

    def set_up(self, setup: bytes) -> None:
        self._channel.settimeout(_START_TIMEOUT_S)
        send_frame(self._channel, setup)
        receive_frame(self._channel)

    def run(self, task: str, spec: GrammarSpec, *, timeout_s: float) -> Record:
        self._channel.settimeout(timeout_s)
        request = {"task": task, "kind": spec.kind, "text": spec.text, "lenient": spec.lenient}
        send_frame(self._channel, pack(request, {}))
        return unpack(receive_frame(self._channel))

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_for_exit(self) -> None:
        """Let a process that has closed its channel end by itself, so that its code says why."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_TIMEOUT_S)

    def kill(self) -> None:
        """End the process, whatever it does; who waits for its reply gets an EOFError."""
        self._process.kill()

    def end(self) -> None:
        """End the process and close the channel, which no other thread may use."""
        self._process.kill()
        self._process.wait()
        self._channel.close()


def _closed() -> BudgetError:
    return BudgetError("compiling the grammar was stopped because the runtime ends")
