import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    """Fails when the test leaves a thread behind, other than the language's event loop."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name != "sgl-event-loop":
            thread.join(timeout=5.0)
            assert not thread.is_alive(), f"{thread.name} is still running"
