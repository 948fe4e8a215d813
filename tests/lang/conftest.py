import threading
from collections.abc import Iterator

import pytest

import sgl
from sgl.backends.scripted import Gate


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    """Fails when the test leaves a thread behind, other than the language's event loop."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name != "sgl-event-loop":
            thread.join(timeout=5.0)
            assert not thread.is_alive(), f"{thread.name} is still running"


class Watched:
    """A scripted backend whose generations wait, with events for when one began and when one was aborted."""

    def __init__(self):
        self.gate, self.begun, self.aborted = Gate(), threading.Event(), threading.Event()
        self.script = sgl.ScriptedBackend("never", before=self.before).model

    def before(self, call):
        self.begun.set()
        return self.gate

    async def call(self, path, payload):
        reply = await self.script.call(path, payload)
        if path == "/abort_request":
            self.aborted.set()
        return reply

    def stream(self, path, payload):
        return self.script.stream(path, payload)


@pytest.fixture
def watched():
    return Watched()
