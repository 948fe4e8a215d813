"""HttpCall: what is known of an HTTP request before its body is read, and the id under which the logs have it."""

import os
import re
from contextvars import ContextVar

import msgspec
from starlette.types import Scope

REQUEST_ID_HEADER = b"x-request-id"
"""Of every reply, and of requests that bring an id."""

ANTHROPIC_ID_HEADER = b"request-id"
"""Where Anthropic's clients look for the same."""

_SCOPE_KEY = "sgl.call"
# What may stand in a log line and in a header as it is.
_USABLE_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class HttpCall(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request.

    Attributes:
        request_id: Given by the client in x-request-id, or made here; every reply has it.
        method, path: As sent, without the prefix that a proxy took off.
        client: Address of the client; "-" where there is none.
        traceparent: Header of that name: the trace that the request belongs to.
        num_body_bytes: How long its body is; None where only its end will tell.
    """

    request_id: str
    method: str
    path: str
    client: str
    traceparent: str | None = None
    num_body_bytes: int | None = 0


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


def begin_call(scope: Scope) -> HttpCall:
    """Make the HttpCall of a request that has come, and put it into the request."""
    request_id = traceparent = None
    num_body_bytes: int | None = 0
    for name, value in scope["headers"]:
        if name == b"content-length":
            # Beside a transfer-encoding it says nothing.
            num_body_bytes = None if num_body_bytes is None else int(value)
        elif name == b"transfer-encoding":
            num_body_bytes = None
        elif name == REQUEST_ID_HEADER and _USABLE_ID.fullmatch(value):
            request_id = value.decode()
        elif name == b"traceparent":
            traceparent = value.decode("latin-1")
    client = scope["client"]
    call = scope[_SCOPE_KEY] = HttpCall(
        request_id=request_id or os.urandom(16).hex(),
        method=scope["method"],
        path=scope["path"].removeprefix(scope["root_path"]),
        client=f"{client[0]}:{client[1]}" if client else "-",
        traceparent=traceparent,
        num_body_bytes=num_body_bytes,
    )
    return call


def call_of(scope: Scope) -> HttpCall:
    """The HttpCall of a request on which `begin_call` was called."""
    call: HttpCall = scope[_SCOPE_KEY]
    return call
