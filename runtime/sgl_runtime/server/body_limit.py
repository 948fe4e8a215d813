"""BodyLimit: how many bytes the body of a request may have."""

from starlette.types import Message, Receive

from sgl_runtime.errors import RequestTooLargeError
from sgl_runtime.server.http_call import HttpCall


class BodyLimit:
    """Ends requests whose body is too long, before it is read where its length is told.

    Args:
        max_bytes: Most bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    def enforced(self, call: HttpCall, receive: Receive) -> Receive:
        """What gives the body of a request.

        A body whose length is told is as long as that; the other is counted as it comes, and raises
        `RequestTooLargeError` where it passes the limit.

        Raises:
            RequestTooLargeError: its body is too long.
        """
        if call.num_body_bytes is not None:
            self._check(call.num_body_bytes)
            return receive
        num_bytes = 0

        async def counted() -> Message:
            nonlocal num_bytes
            message = await receive()
            if message["type"] == "http.request":
                num_bytes += len(message["body"])
                self._check(num_bytes)
            return message

        return counted

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            raise RequestTooLargeError(f"the body has more than {self._max_bytes} bytes, the limit of this server")
