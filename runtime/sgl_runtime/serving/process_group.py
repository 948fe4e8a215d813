"""ProcessGroup: the parent's side of the server's processes; they begin together and end together."""

import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from sgl_runtime.errors import ModelLoadError
from sgl_runtime.serving.child_process import ChildFailed, ChildReady

logger = logging.getLogger(__name__)

END_WAIT_S = 2.0
_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Let signals that end the server take effect only behind the block.

    A blocked signal may still reach another thread of this process, and its handler then runs in the main one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    handlers = {number: signal.signal(number, lambda came, _: held.append(came)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


class ProcessGroup:
    """Starts children by `spawn`, waits until they serve, and ends them."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[str, BaseProcess] = {}
        self._first_words: dict[str, Connection] = {}
        self._started = time.monotonic()

    def start(self, name: str, main: Callable[..., None], *args: Any) -> None:
        """Start a child.

        Args:
            name: For logs and errors.
            main: A module-level function; it gets `args` and the connection for its first word.
            args: What it needs; pickled.
        """
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=main, args=(*args, theirs), name=name)
        # A blocked signal stays blocked in the child: one that comes while it imports its modules must not end it with
        # a traceback.  Here it is only late, so that no child goes unregistered.  The tracker's start would unblock
        # them, so that comes first.
        resource_tracker.ensure_running()
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            with _signals_held_back():
                process.start()
                self._processes[name], self._first_words[name] = process, ours
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        theirs.close()

    def wait_ready(self) -> dict[str, dict[str, Any]]:
        """Wait until every child serves; the facts that each has told.

        Raises:
            ModelLoadError: one cannot, with its reason.
        """
        facts: dict[str, dict[str, Any]] = {}
        names = {connection: name for name, connection in self._first_words.items()}
        while names:
            for connection in wait(list(names)):
                assert isinstance(connection, Connection)
                name = names.pop(connection)
                facts[name] = self._read_first_word(name, connection)
                logger.info("process ready name=%s seconds=%.2f", name, time.monotonic() - self._started)
        return facts

    def sentinels(self) -> dict[int, str]:
        """For each child a handle that becomes readable when it ends, and its name."""
        return {process.sentinel: name for name, process in self._processes.items()}

    def describe_end(self, name: str) -> str:
        """How a child that has ended ended."""
        process = self._processes[name]
        process.join(END_WAIT_S)
        code = process.exitcode
        how = f"by signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
        return f"process {name} (pid {process.pid}) ended {how}"

    def stop(self) -> None:
        """End every child, and wait until it is gone."""
        for process in self._processes.values():
            process.terminate()
        deadline = time.monotonic() + END_WAIT_S
        for name, process in self._processes.items():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                logger.warning("process killed name=%s", name)
                process.kill()
                process.join()
        for connection in self._first_words.values():
            connection.close()

    def _read_first_word(self, name: str, connection: Connection) -> dict[str, Any]:
        try:
            word = connection.recv()
        except EOFError:
            raise ModelLoadError(f"{self.describe_end(name)} before it was ready") from None
        if isinstance(word, ChildFailed):
            raise ModelLoadError(word.message)
        assert isinstance(word, ChildReady)
        return word.facts
