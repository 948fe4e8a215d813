"""ErrorBoundary: whatever goes wrong in a request becomes a reply in the envelope of its path's family."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.server.error_reply import error_for_path, error_headers, internal_error
from sgl_runtime.server.http_body import json_response
from sgl_runtime.server.http_call import call_of


class ErrorBoundary:
    """Answers with errors that the layers inside raise.

    Args:
        app: What answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        has_begun = False

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
            return
        except SglRuntimeError as error:
            told = error
        except Exception as error:
            told = internal_error(error)
        # A reply that has begun cannot become another one: it is cut off, which the server does where nothing ends it.
        if not has_begun:
            body = error_for_path(call_of(scope).path, told)
            await json_response(body, status=told.status, headers=error_headers(told))(scope, receive, send)
