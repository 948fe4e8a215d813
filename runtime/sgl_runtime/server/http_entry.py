"""HttpEntry: the outermost layer of the HTTP application."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sgl_runtime.server.error_reply import is_anthropic
from sgl_runtime.server.http_call import ANTHROPIC_ID_HEADER, REQUEST_ID_HEADER, CurrentCall, begin_call
from sgl_runtime.server.http_log import is_logged, log_call


class HttpEntry:
    """Makes the HttpCall of each request, puts its id into the reply, and sees to its line in the log.

    Args:
        app: What answers.
        current: Told of each request.
    """

    def __init__(self, app: ASGIApp, current: CurrentCall) -> None:
        self._app = app
        self._current = current

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        call = begin_call(scope)
        self._current.enter(call)
        status = 0

        async def with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                request_id = call.request_id.encode()
                message["headers"] = [*message["headers"], (REQUEST_ID_HEADER, request_id)]
                if is_anthropic(call.path):
                    message["headers"].append((ANTHROPIC_ID_HEADER, request_id))
            await send(message)

        if not is_logged(call):
            await self._app(scope, receive, with_id)
            return
        begin = time.monotonic()
        try:
            await self._app(scope, receive, with_id)
        finally:
            log_call(call, status=status, seconds=time.monotonic() - begin)
