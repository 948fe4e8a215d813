"""TimedProtocol: HTTP on one connection, which its client cannot hold for ever or fill the memory through."""

import asyncio
import logging
import time
from typing import Any

import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from sgl_runtime.config_serving import ConnectionConfig
from sgl_runtime.server.date_header import DateHeader
from sgl_runtime.server.departure import expect_departure, tell_departure
from sgl_runtime.server.error_reply import RETRY_AFTER_S, http_error_body

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
"""Request line and headers."""

MAX_HELD_BYTES = 64 * 1024
"""A body up to this length is waited for before the application hears of its request."""

MAX_WAITING = 8
"""Requests of a connection that wait for the one before them; past it no more is read."""

_UPGRADE, _NO_UPGRADE = b"\r\nupgrade:", b"\r\nx-offer:"

_LEAST_RATE = 64 * 1024
"""Bytes a second of a body that keep a slow client from being cut off."""


class TimedProtocol(HttpToolsProtocol):
    """Adds to uvicorn's protocol limits on heads, on the number of connections, and on how slow a client may be.

    uvicorn itself bounds only the time between two requests of a connection.  The application is told of a request
    when its body is there, unless that is long, comes in chunks, or waits for a word of the server.

    Args:
        limits: The limits.
        date: Goes into every reply.
        arguments: For uvicorn's class.
    """

    def __init__(self, *, limits: ConnectionConfig, date: DateHeader, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._date = date
        self._held: ASGI3Application | None = None
        self._is_in_head = False
        self._is_in_body = False
        self._began = time.monotonic()
        self._num_head_bytes = 0
        self._num_body_bytes = 0
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        # Requests that have come and have no whole reply, in order; uvicorn itself knows the last one alone.
        self._unanswered: list[RequestResponseCycle] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            logger.warning("connection refused open=%d", len(self.connections) - 1)
            self._refuse(
                503, f"the server holds {self._limits.max_connections} connections, and takes no more", "overloaded"
            )
            return
        self._began = time.monotonic()
        self._read_timer = self.loop.call_later(self._limits.keep_alive_timeout, self._check_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        super().connection_lost(exc)
        self._leave_requests()
        self._unset_keepalive_if_required()
        for timer in (self._read_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._read_timer = self._write_timer = None

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self.transport.is_closing():
            return
        self._num_head_bytes += len(data)
        super().data_received(data if self._is_in_body else _without_upgrade(data))
        if self._is_in_head and self._num_head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, f"the head of the request is longer than {MAX_HEAD_BYTES} bytes", "invalid_request")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._is_in_head, self._num_head_bytes, self._num_body_bytes = True, 0, 0
        self._began = time.monotonic()
        if self.cycle is None and self._read_timer is not None:
            # It waits for the first request of a connection, which may take longer.
            self._read_timer.cancel()
            self._read_timer = None
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self._limits.read_timeout, self._check_reading)

    def on_headers_complete(self) -> None:
        """The head of a request has come."""
        self._is_in_head, self._is_in_body = False, True
        self.server_state.default_headers = self._date.now()
        expect_departure(self.scope["state"])
        super().on_headers_complete()
        self._unanswered = [cycle for cycle in self._unanswered if not cycle.response_complete]
        self._unanswered.append(self.cycle)
        if 0 < len(self.pipeline) < MAX_WAITING:
            # uvicorn stops reading here, and would not notice that the client leaves.
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        """A piece of its body has come."""
        self._num_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it has come."""
        self._is_in_body = False
        super().on_message_complete()
        if self._held is not None:
            app, self._held = self._held, None
            super()._start_asgi_task(self.cycle, app)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        logger.debug("no HTTP from client=%s", self.client)
        self._refuse(400, "the connection carries no valid HTTP", "invalid_request")

    def pause_writing(self) -> None:
        """The client takes its reply more slowly than it is made."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._limits.write_timeout, self._give_up_writing)

    def resume_writing(self) -> None:
        """It has caught up."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def timeout_keep_alive_handler(self) -> None:
        """No further request has come."""
        super().timeout_keep_alive_handler()
        # Closing waits for the client to take what is left of its reply.
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._limits.write_timeout, self._give_up_writing)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Tell the application of a request, now or when the rest of it is there."""
        if cycle is self.cycle and self._is_in_body and not self.expect_100_continue and _is_short(self.headers):
            self._held = app
        else:
            super()._start_asgi_task(cycle, app)

    def _unsupported_upgrade_warning(self) -> None:
        """A client that asks for another protocol is answered in this one, and is no reason for a warning."""

    def _check_reading(self) -> None:
        """Cut off a client that is too slow; otherwise look again when it could be."""
        self._read_timer = None
        if self.transport.is_closing():
            return
        if self._is_in_head or self._is_in_body:
            allowed_s = self._limits.read_timeout + self._num_body_bytes / _LEAST_RATE
        elif self.cycle is None:
            allowed_s = self._limits.keep_alive_timeout
        else:
            # Between requests uvicorn watches, and the next request begins the watch anew.
            return
        left_s = self._began + allowed_s - time.monotonic()
        # Behind a request that is being answered, it is the server that does not read.
        is_behind = bool(self.pipeline)
        if left_s > 0.0 or is_behind:
            delay_s = self._limits.read_timeout if is_behind else left_s
            self._read_timer = self.loop.call_later(delay_s, self._check_reading)
        elif not self._is_in_head and (self.cycle is None or self.cycle.response_complete):
            # Nothing was asked, or it has its answer and the rest of its body is of no use.
            self.transport.close()
        else:
            logger.info("slow client cut off seconds=%.1f bytes=%d", allowed_s, self._num_body_bytes)
            self._refuse(408, f"the request did not come within {allowed_s:g} s", "request_timeout")

    def _give_up_writing(self) -> None:
        logger.info("client cut off that takes no data seconds=%.1f", self._limits.write_timeout)
        self._leave_requests()
        self.transport.abort()

    def _leave_requests(self) -> None:
        """Nobody waits for the replies any more."""
        self._held = None
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
                tell_departure(cycle.scope["state"])
        self._unanswered.clear()

    def _may_answer(self) -> bool:
        """Whether what is written now is read as the reply to the request that is coming in."""
        ahead = [cycle for cycle in self._unanswered if not cycle.response_complete]
        if not self._is_in_head and ahead and ahead[-1] is self.cycle:
            # The request itself, whose head has come.
            ahead = [*ahead[:-1], *([self.cycle] if self.cycle.response_started else [])]
        return not ahead

    def _refuse(self, status: int, message: str, code: str) -> None:
        """Answer without a request to the application, and close."""
        if self._may_answer():
            path = self.scope.get("path", "") if self.scope else ""
            body = msgspec.json.encode(http_error_body(path, message, status=status, code=code))
            retry = b"retry-after: %d\r\n" % RETRY_AFTER_S if status == 503 else b""
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n%s\r\n"
            self.transport.write(STATUS_LINE[status] + head % (len(body), retry) + body)
        self._leave_requests()
        self.transport.close()
        self._write_timer = self.loop.call_later(self._limits.write_timeout, self._give_up_writing)


def _is_short(headers: list[tuple[bytes, bytes]]) -> bool:
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and int(value) > MAX_HELD_BYTES):
            return False
    return True


def _without_upgrade(data: bytes) -> bytes:
    """The beginning of a request without its offer to go on in another protocol, as some clients make with each.

    The offer is not taken up, and the parser would take what follows it for that protocol, and not for a body.
    """
    end = data.find(b"\r\n\r\n")
    head = data[: len(data) if end < 0 else end].lower()
    while (place := head.find(_UPGRADE)) >= 0:
        data = data[:place] + _NO_UPGRADE + data[place + len(_UPGRADE) :]
        head = head[:place] + _NO_UPGRADE + head[place + len(_UPGRADE) :]
    return data
