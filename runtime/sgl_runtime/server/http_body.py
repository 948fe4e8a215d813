"""Reading a request's JSON body, and noticing that its sender went away."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from sgl_runtime.errors import InvalidRequestError, RequestAbortedError

T = TypeVar("T")

MAX_BODY_BYTES = 64 * 1024 * 1024


async def read_json(request: Request) -> Any:
    """The body as Python objects; None for an empty one.

    Raises:
        InvalidRequestError: it is too long, or no JSON.
        RequestAbortedError: the client went away before its end.
    """
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise InvalidRequestError(f"the body is longer than {MAX_BODY_BYTES} bytes")
    except ClientDisconnect as error:
        raise RequestAbortedError("the client closed the connection before the end of the body") from error
    if not body:
        return None
    try:
        return msgspec.json.decode(bytes(body))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidRequestError("the body is nested too deeply") from error


def json_response(content: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON reply; an infinite number, which JSON has not, becomes null."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has closed its connection; the body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes away first.

    Raises:
        RequestAbortedError: the client went away.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise RequestAbortedError("the client closed the connection")
    finally:
        for waiter in (task, gone):
            waiter.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
