"""Server-sent events: a stream of JSON objects as one HTTP response."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sgl_runtime.errors import RequestAbortedError, SglRuntimeError
from sgl_runtime.server.departure import unless_departed
from sgl_runtime.server.error_reply import error_object, internal_error

logger = logging.getLogger(__name__)


def event(content: Any) -> bytes:
    """One event that holds a JSON object."""
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


def named_event(content: Any) -> bytes:
    """One event that is called by the `type` of the JSON object in it."""
    kind: str = content["type"]
    return b"event: " + kind.encode() + b"\n" + event(content)


@dataclass(frozen=True, kw_only=True)
class EventForm:
    """How a family of paths writes its streams.

    Attributes:
        write: Bytes of one reply.
        error: The reply that tells of an error, after which nothing comes.
        end: Bytes behind the last reply.
        ping: Bytes that say that the stream still lives; empty for a stream that does not say it.
        ping_after_s: Sent when nothing else was for so many seconds.
    """

    write: Callable[[Any], bytes] = event
    error: Callable[[SglRuntimeError], Any] = error_object
    end: bytes = b"data: [DONE]\n\n"
    ping: bytes = b""
    ping_after_s: float = 15.0


PLAIN_EVENTS = EventForm()
"""The native paths and most of OpenAI's."""


async def event_stream(
    scope: Scope, replies: AsyncGenerator[Any, None], form: EventForm = PLAIN_EVENTS
) -> "EventStream":
    """The response for a stream of replies.

    The first reply is waited for before the response begins, so that a request that is refused gets a status.

    Raises:
        SglRuntimeError: there was no first reply.
    """
    try:
        first = await unless_departed(scope, anext(replies))
    except BaseException:
        await replies.aclose()
        raise
    return EventStream(first, replies, form)


class EventStream(Response):
    """Sends replies until they end or the client goes away; then they are closed.

    Args:
        first: The first reply.
        replies: All others.
        form: How they are written.
    """

    media_type = "text/event-stream"

    def __init__(self, first: Any, replies: AsyncGenerator[Any, None], form: EventForm = PLAIN_EVENTS) -> None:
        super().__init__(headers={"cache-control": "no-cache"})
        del self.headers["content-length"]
        self._first = first
        self._replies = replies
        self._form = form
        self._sent_at = time.monotonic()
        self._has_ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the response."""
        pinging = asyncio.create_task(self._ping(send)) if self._form.ping else None
        async with aclosing(self._replies):
            try:
                await unless_departed(scope, self._run(send))
            except RequestAbortedError:
                logger.debug("client went away from a stream")
            finally:
                if pinging is not None:
                    pinging.cancel()

    async def _run(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._events()) as events:
            async for data in events:
                self._sent_at = time.monotonic()
                await send({"type": "http.response.body", "body": data, "more_body": True})
        self._has_ended = True
        await send({"type": "http.response.body", "body": self._form.end, "more_body": False})

    async def _ping(self, send: Send) -> None:
        while True:
            left_s = self._sent_at + self._form.ping_after_s - time.monotonic()
            if left_s > 0.0:
                await asyncio.sleep(left_s)
            elif self._has_ended:
                return
            else:
                self._sent_at = time.monotonic()
                await send({"type": "http.response.body", "body": self._form.ping, "more_body": True})

    async def _events(self) -> AsyncGenerator[bytes, None]:
        form = self._form
        yield form.write(self._first)
        try:
            async for reply in self._replies:
                yield form.write(reply)
        except SglRuntimeError as error:
            yield form.write(form.error(error))
        except Exception as error:
            # The response has begun: the log gets the cause, the client the one envelope.
            yield form.write(form.error(internal_error(error)))
