"""wait_for: what other threads and processes do soon, but not at once."""

import threading
import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object]) -> None:
    """Return as soon as a condition holds; fail where it does not within ten seconds."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited for ten seconds"
        threading.Event().wait(0.005)
