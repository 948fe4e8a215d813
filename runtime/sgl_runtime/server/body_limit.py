"""BodyLimit: how many bytes the body of a request may have."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sgl_runtime.errors import RequestTooLargeError


class BodyLimit:
    """Ends requests whose body is too long, before it is read where its length is told.

    Args:
        app: What answers.
        max_bytes: Most bytes.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            RequestTooLargeError: its body is too long.
        """
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                self._check(int(value))
        num_bytes = 0

        async def counted() -> Message:
            nonlocal num_bytes
            message = await receive()
            if message["type"] == "http.request":
                num_bytes += len(message["body"])
                self._check(num_bytes)
            return message

        await self._app(scope, counted, send)

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            raise RequestTooLargeError(f"the body has more than {self._max_bytes} bytes, the limit of this server")
