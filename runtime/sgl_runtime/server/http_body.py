"""Reading a request's JSON body, and noticing that its sender went away."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from sgl_runtime.errors import InvalidRequestError, RequestAbortedError, RequestTooLargeError

T = TypeVar("T")

MAX_CONTAINERS, MAX_VALUES = 250_000, 2_000_000
"""Most lists and objects of a body, and most values.  Each costs time and memory of its own, which text does not, and
nobody else is answered while they are read."""

_WORTH_COUNTING = 1 << 18


async def read_json(request: Request) -> Any:
    """The body as Python objects; None for an empty one.

    Raises:
        InvalidRequestError: it is no JSON.
        RequestTooLargeError: it holds too many values.
        RequestAbortedError: the client went away before its end.
    """
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
    except ClientDisconnect as error:
        raise RequestAbortedError("the client closed the connection before the end of the body") from error
    if not body:
        return None
    if len(body) > _WORTH_COUNTING:
        _check_count("lists and objects", body.count(b"[") + body.count(b"{"), MAX_CONTAINERS)
        _check_count("values", body.count(b","), MAX_VALUES)
    try:
        return msgspec.json.decode(bytes(body))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidRequestError("the body is nested too deeply") from error


def _check_count(what: str, count: int, most: int) -> None:
    # Marks inside of texts count too: telling them apart would cost what is saved here.
    if count > most:
        raise RequestTooLargeError(
            f"the body holds about {count} {what}; at most {most} are taken. Send less at once, embeddings in base64"
        )


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
    # It runs in the caller's task, and only the watch beside it is one of its own: both are made for every request.
    task = asyncio.current_task()
    assert task is not None
    gone = False

    async def watch() -> None:
        nonlocal gone
        await wait_for_disconnect(receive)
        gone = True
        task.cancel()

    watcher = asyncio.ensure_future(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if not gone or task.uncancel() > 0:
            raise
        raise RequestAbortedError("the client closed the connection") from None
    finally:
        watcher.cancel()
