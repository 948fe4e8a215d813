"""HttpCall: what is known of an HTTP request before its body is read, and the id under which the logs have it."""

import re
import uuid
from contextvars import ContextVar
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID_HEADER = b"x-request-id"

_SCOPE_KEY = "sgl.call"
# What may stand in a log line and in a header as it is.
_USABLE_ID = re.compile(rb"[\x21-\x7e]{1,128}")


@dataclass(frozen=True)
class HttpCall:
    """One HTTP request.

    Attributes:
        request_id: Given by the client in x-request-id, or made here; every reply has it.
        method, path: As sent, without the prefix that a proxy took off.
        client: Address of the client; "-" where there is none.
        traceparent: Header of that name: the trace that the request belongs to.
    """

    request_id: str
    method: str
    path: str
    client: str
    traceparent: str | None


class CurrentCall:
    """Which HTTP request the running task answers; one for each process."""

    def __init__(self) -> None:
        self._variable: ContextVar[HttpCall | None] = ContextVar("http call", default=None)

    def enter(self, call: HttpCall) -> None:
        """The running task answers this one."""
        self._variable.set(call)

    def get(self) -> HttpCall | None:
        """The HTTP request; None where none is behind what runs."""
        return self._variable.get()


class HttpEntry:
    """The outermost layer: makes the HttpCall of each request, and puts its id into the reply.

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
        call = _read_call(scope)
        scope[_SCOPE_KEY] = call
        self._current.enter(call)
        header = (REQUEST_ID_HEADER, call.request_id.encode())

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], header]
            await send(message)

        await self._app(scope, receive, with_id)


def call_of(scope: Scope) -> HttpCall:
    """The HttpCall of a request that came through `HttpEntry`."""
    call: HttpCall = scope[_SCOPE_KEY]
    return call


def _read_call(scope: Scope) -> HttpCall:
    request_id = traceparent = None
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER and _USABLE_ID.fullmatch(value):
            request_id = value.decode()
        elif name == b"traceparent":
            traceparent = value.decode("latin-1")
    client = scope["client"]
    return HttpCall(
        request_id=request_id or uuid.uuid4().hex,
        method=scope["method"],
        path=scope["path"].removeprefix(scope["root_path"]),
        client=f"{client[0]}:{client[1]}" if client else "-",
        traceparent=traceparent,
    )
