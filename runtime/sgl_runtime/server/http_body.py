"""JSON bodies of requests and replies."""

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from sgl_runtime.errors import InvalidRequestError, RequestAbortedError, RequestTooLargeError

MAX_CONTAINERS, MAX_VALUES = 250_000, 2_000_000
"""Most lists and objects of a body, and most values.  Each costs time and memory of its own, which text does not, and
nobody else is answered while they are read."""

_WORTH_COUNTING = 1 << 18

# The escape of a high half without that of a low one behind it; an even number of backslashes stands in front.
_LONE_SURROGATE = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})")


async def read_json(request: Request) -> Any:
    """The body as Python objects; None for an empty one.

    Raises:
        InvalidRequestError: it is no JSON.
        RequestTooLargeError: it holds too many values.
        RequestAbortedError: the client went away before its end.
    """
    body = await _read_body(request.receive)
    if not body:
        return None
    if len(body) > _WORTH_COUNTING:
        _check_count("lists and objects", body.count(b"[") + body.count(b"{"), MAX_CONTAINERS)
        _check_count("values", body.count(b","), MAX_VALUES)
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the body is not valid JSON: {_lone_surrogate(body) or error}") from error
    except RecursionError as error:
        raise InvalidRequestError("the body is nested too deeply") from error


def _lone_surrogate(body: bytes | bytearray) -> str | None:
    """Where a text was cut within a character, as clients do that count in UTF-16; None where none was."""
    found = _LONE_SURROGATE.search(body)
    if found is None:
        return None
    return (
        f"half of a surrogate pair, {found[1].decode()}, stands at byte {found.start(1)}; texts must be valid Unicode"
    )


async def _read_body(receive: Receive) -> bytes | bytearray:
    parts = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestAbortedError("the client closed the connection before the end of the body")
        if not message["more_body"]:
            last: bytes = message["body"]
            return parts + last if parts else last
        parts += message["body"]


def _check_count(what: str, count: int, most: int) -> None:
    # Marks inside of texts count too: telling them apart would cost what is saved here.
    if count > most:
        raise RequestTooLargeError(
            f"the body holds about {count} {what}; at most {most} are taken. Send less at once, embeddings in base64"
        )


def json_response(content: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON reply; an infinite number, which JSON has not, becomes null."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
