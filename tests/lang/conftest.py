import threading
from collections.abc import Iterator
from typing import Any

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


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    """The small real model in this process; started once for all tests that ask for it."""
    with sgl.Engine(model_path="smollm2", max_total_tokens=8192) as engine:
        yield engine


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


@pytest.fixture(scope="session")
def small_engine() -> Iterator[object]:
    """An engine on the small real model, shared by the modules that need nothing else of it."""
    with sgl.Engine(model_path="smollm2", max_total_tokens=8192) as engine:
        yield engine
