"""Pulse: says that the scheduler's loop turns, also while a long pass runs."""

import time
from collections.abc import Callable
from threading import Event, Thread

from sgl_runtime.ipc.messages import Heartbeat

PERIOD_S = 1.0


class Pulse:
    """Sends a heartbeat every second until one turn of the loop lasts too long.

    A thread of its own sends: a prefill of many seconds is no reason to be called dead, a loop that hangs is.

    Args:
        send: Takes each heartbeat; called from the pulse's thread.
        max_turn_s: A turn longer than this counts as a hang.
    """

    def __init__(self, send: Callable[[Heartbeat], None], *, max_turn_s: float) -> None:
        self._send = send
        self._max_turn_s = max_turn_s
        self._turn_began = time.monotonic()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._turn_began = time.monotonic()
        self._thread.start()

    def turn(self) -> None:
        """Called by the loop as each turn begins."""
        self._turn_began = time.monotonic()

    def stop(self) -> None:
        """Send no more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            now = time.monotonic()
            if now - self._turn_began < self._max_turn_s:
                self._send(Heartbeat(time=now))
            self._stopped.wait(PERIOD_S)
