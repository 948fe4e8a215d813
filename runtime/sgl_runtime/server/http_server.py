"""HttpServer: uvicorn, ended so that running requests get an answer."""

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from sgl_runtime.config_serving import ConnectionConfig
from sgl_runtime.server.date_header import DateHeader
from sgl_runtime.server.timed_protocol import TimedProtocol

logger = logging.getLogger(__name__)

INTERRUPT_GRACE_S = 2.0
"""How long requests get after Ctrl-C, whose sender waits at a terminal."""

# After the drain every request has its answer; what is left are clients that do not read it.
_CLOSE_WAIT_S = 1


class HttpServer(uvicorn.Server):
    """Serves an application.

    Args:
        app: The application.
        drain: Runs when the server stops, with the seconds that it may take: returns when no request is left.
        limits: On connections, and on the time of the drain.
        tls: Certificates; None to speak without TLS.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        drain: Callable[[float], Coroutine[Any, Any, None]],
        limits: ConnectionConfig,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            server_header=False,
            root_path=limits.root_path,
            timeout_graceful_shutdown=_CLOSE_WAIT_S,
        )
        config.load()
        config.loaded_app = _Forwarded(app, config.loaded_app)
        config.ssl = tls
        # Of these uvicorn knows only whole seconds, and only classes.
        config.timeout_keep_alive = limits.keep_alive_timeout  # type: ignore[assignment]
        config.http_protocol_class = partial(TimedProtocol, limits=limits, date=DateHeader())  # type: ignore[assignment]
        super().__init__(config)
        self._drain = drain
        self._grace_s = limits.shutdown_timeout
        self._signal: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._forced = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        scheme = "http" if self.config.ssl is None else "https"
        for listener in sockets or ():
            logger.info("serving url=%s", _url(scheme, listener))

    async def main_loop(self) -> None:
        """Return when the server is to end."""
        # uvicorn's own looks ten times a second, and each look costs a request under way as much as a part of itself.
        await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests end, close.

        New connections are taken until then: their requests are refused in so many words, and /ready says why.
        """
        if self._signal is not None:
            name = signal.Signals(self._signal).name
            logger.info("ending the server signal=%s shutdown_timeout=%.1f", name, self._grace_s)
        drained = asyncio.create_task(self._drain(self._grace_s))
        forced = asyncio.create_task(self._forced.wait())
        await asyncio.wait((drained, forced), return_when=asyncio.FIRST_COMPLETED)
        is_forced = not drained.done()
        for task in (drained, forced):
            task.cancel()
        await asyncio.gather(drained, forced, return_exceptions=True)
        if is_forced:
            await self._drain(0.0)
        await super().shutdown(sockets)

    def stop(self, *, grace_s: float | None = None) -> None:
        """End; running requests get so many seconds, by default what the limits say.  Any thread may call it."""
        if grace_s is not None:
            self._grace_s = min(grace_s, self._grace_s)
        self.should_exit = True
        self._tell(self._ending)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: the first one lets running requests end, a second one does not."""
        if self.should_exit:
            self._tell(self._forced)
            return
        self._signal = sig
        self.stop(grace_s=INTERRUPT_GRACE_S if sig == signal.SIGINT else None)

    def _tell(self, event: asyncio.Event) -> None:
        # Before the start nobody waits, and the server looks by itself.
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(event.set)


class _Forwarded:
    """Lets requests that a proxy has passed on go through the layer that knows its headers, and no others.

    Args:
        app: The application.
        proxied: The same behind that layer.
    """

    def __init__(self, app: ASGIApp, proxied: ASGIApp) -> None:
        self._app = app
        self._proxied = proxied

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request."""
        for name, _ in scope["headers"]:
            if name.startswith(b"x-forwarded-"):
                return self._proxied(scope, receive, send)
        return self._app(scope, receive, send)


def _url(scheme: str, listener: socket.socket) -> str:
    address = listener.getsockname()
    if isinstance(address, str):
        return f"unix:{address}"
    host, port = address[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
