"""Watchdog: ends a process whose loop hangs, with the stacks of its threads in the log."""

import faulthandler
import logging
import os
import tempfile
import time
from threading import Thread

logger = logging.getLogger(__name__)

EXIT_CODE = 70
"""Of a process that was ended because its loop hung."""

# The thread that watches needs Python's lock, which what hangs may hold: then faulthandler, which needs none, ends the
# process a little later.
_FALLBACK_S = 2.0
_LONGEST_WAIT_S = 1.0
_STDERR = 2


class Watchdog:
    """Watches the turns of a loop.

    Args:
        timeout_s: A turn longer than this is a hang.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._turn_began = time.monotonic()
        self._thread = Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._turn_began = time.monotonic()
        self._thread.start()

    def turn(self) -> None:
        """Called by the loop as each turn begins."""
        self._turn_began = time.monotonic()

    def _run(self) -> None:
        wait_s = min(_LONGEST_WAIT_S, self._timeout_s / 4)
        while True:
            left_s = self._turn_began + self._timeout_s - time.monotonic()
            if left_s <= 0.0:
                self._end()
            faulthandler.dump_traceback_later(left_s + _FALLBACK_S, exit=True, file=_STDERR)
            time.sleep(max(0.01, min(wait_s, left_s)))

    def _end(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        logger.critical(
            "a pass has hung for more than watchdog_timeout=%g seconds; ending the process; stacks of all threads:\n%s",
            self._timeout_s,
            _stacks(),
        )
        os._exit(EXIT_CODE)


def _stacks() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()
