"""HttpServer: uvicorn, ended so that running requests get an answer."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import uvicorn
from fastapi import FastAPI

logger = logging.getLogger(__name__)

# After the drain every request has its answer; what is left are clients that do not read it.
_CLOSE_WAIT_S = 1


class HttpServer(uvicorn.Server):
    """Serves an application.

    Args:
        app: The application.
        drain: Runs when the server stops: returns when no request is left.
        grace_s: How long `drain` may take.
    """

    def __init__(self, app: FastAPI, *, drain: Callable[[], Coroutine[Any, Any, None]], grace_s: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=int(grace_s) + _CLOSE_WAIT_S,
            )
        )
        self._drain = drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections."""
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            logger.info("serving url=http://%s:%d", f"[{host}]" if ":" in host else host, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, let requests end, close."""
        draining = asyncio.create_task(self._drain())
        await super().shutdown(sockets)
        await draining
