"""BackgroundRun: a response that is made while nobody need wait for it, and those who follow it."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from sgl_runtime.server.responses_output import Event
from sgl_runtime.server.responses_writer import ResponseWriter
from sgl_runtime.server.sse import named_event


class BackgroundRun:
    """One response under way.

    Args:
        writer: Writes it.
        items: All that it answers.
        is_stream: Whether its events are kept, to be followed.

    Attributes:
        events: Its stream so far.
        size_bytes: What they take.
        task: What makes it; set once, when it starts.
    """

    def __init__(self, writer: ResponseWriter, items: list[dict[str, Any]], *, is_stream: bool) -> None:
        self.writer = writer
        self.items = items
        self.is_stream = is_stream
        self.events: list[bytes] = []
        self.size_bytes = 0
        self.task: asyncio.Task[None] | None = None
        self._is_over = False
        self._news = asyncio.Event()

    def note(self, events: list[Event]) -> None:
        """Take the next events."""
        if self.is_stream:
            written = list(map(named_event, events))
            self.events += written
            self.size_bytes += sum(map(len, written))
            self._wake()

    def end(self) -> None:
        """No events will come."""
        self._is_over = True
        self._wake()

    async def follow(self, place: int) -> AsyncGenerator[bytes, None]:
        """The events from a place on, until the last."""
        while True:
            # Taken before looking, so that what comes meanwhile is not missed.
            news = self._news
            while place < len(self.events):
                yield self.events[place]
                place += 1
            if self._is_over:
                return
            await news.wait()

    async def cancel(self) -> None:
        """End it, and wait until it has ended."""
        assert self.task is not None, "it was started"
        self.task.cancel()
        await asyncio.wait((self.task,))

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
