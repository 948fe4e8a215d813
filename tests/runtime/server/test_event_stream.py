"""Streams of events: they say that they live while nothing comes, and end with what they have."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from starlette.types import Message

from sgl_runtime.server.sse import EventForm, EventStream, named_event

PING = named_event({"type": "ping"})


class Client:
    """Takes what an application sends."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.has_ping = asyncio.Event()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.bodies.append(message["body"])
            if message["body"] == PING:
                self.has_ping.set()

    async def receive(self) -> Message:
        raise AssertionError("nothing is read while a stream runs")


async def run(client: Client, form: EventForm, replies: AsyncGenerator[Any, None]) -> None:
    await EventStream("first", replies, form)({"type": "http"}, client.receive, client.send)


def test_a_stream_that_is_silent_sends_pings() -> None:
    async def check() -> None:
        client = Client()

        async def replies() -> AsyncGenerator[str, None]:
            await client.has_ping.wait()
            yield "second"

        form = EventForm(write=str.encode, end=b"end", ping=PING, ping_after_s=0.01)
        await asyncio.wait_for(run(client, form, replies()), 10)
        assert client.bodies[:2] == [b"first", PING]
        assert [body for body in client.bodies if body != PING] == [b"first", b"second", b"end"]

    asyncio.run(check())


def test_a_stream_whose_events_come_sends_none() -> None:
    async def check() -> None:
        client = Client()

        async def replies() -> AsyncGenerator[str, None]:
            for number in range(3):
                await asyncio.sleep(0)
                yield str(number)

        await run(client, EventForm(write=str.encode, end=b"end", ping=PING), replies())
        assert client.bodies == [b"first", b"0", b"1", b"2", b"end"]

    asyncio.run(check())
