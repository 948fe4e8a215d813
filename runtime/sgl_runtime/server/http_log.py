"""HttpLog: a line for each HTTP request, by the logger that `logs.py` gives a level of its own."""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sgl_runtime.server.http_call import HttpCall, call_of

logger = logging.getLogger(__name__)

PROBES = frozenset({"/health", "/ping", "/ready", "/metrics"})
"""Paths that orchestrators and monitoring ask every few seconds."""


class HttpLog:
    """Writes method, path, status and seconds when a reply has ended.

    Args:
        app: What answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        call = call_of(scope)
        level = logging.DEBUG if call.path in PROBES else logging.INFO
        if not logger.isEnabledFor(level):
            return await self._app(scope, receive, send)
        begin = time.monotonic()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            self._write(level, call, status, time.monotonic() - begin)

    def _write(self, level: int, call: HttpCall, status: int, seconds: float) -> None:
        logger.log(
            level,
            "http request method=%s path=%s status=%d seconds=%.4f client=%s request_id=%s",
            call.method,
            # The path is whatever the client sent: nothing in it may look like a line of ours.
            call.path if call.path.isprintable() and " " not in call.path else repr(call.path),
            status,
            seconds,
            call.client,
            call.request_id,
        )
