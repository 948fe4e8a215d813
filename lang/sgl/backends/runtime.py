"""RuntimeEndpoint: a server of sgl_runtime, over HTTP."""

import json
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from sgl.backends.native import NativeBackend
from sgl.backends.payload import error_from_reply
from sgl.chat_template import ChatTemplate, as_chat_template
from sgl.errors import ArgumentError, BackendError, reject
from sgl.event_loop import event_loop_thread

CONNECT_TIMEOUT_S = 10.0
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
GET_PATHS = frozenset({"/health", "/get_model_info", "/get_server_info"})


class RuntimeEndpoint(NativeBackend):
    """Runs programs on a server.  Asks for its model at once, so a wrong address fails here.

    Args:
        base_url: Address, as in "http://localhost:30000".
        api_key: Sent as a bearer token.
        verify: Check the server's certificate; or the path of a file with the certificates to trust.
        chat_template_name: A `ChatTemplate`, or the name of one, in place of the served model's own; None for that.
        timeout_s: Longest silence of the server while it answers; None waits as long as it takes.

    Raises:
        ArgumentError: a value is wrong.
        BackendError: the server cannot be reached or refuses.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        verify: bool | str | None = None,
        chat_template_name: ChatTemplate | str | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
            raise reject("base_url", base_url, "an address that begins with http:// or https://")
        if timeout_s is not None and (not isinstance(timeout_s, int | float) or not timeout_s > 0):
            raise reject("timeout_s", timeout_s, "a number of seconds above 0, or None")
        _check_key(api_key)
        self.base_url = base_url.rstrip("/")
        self._chat_template = as_chat_template(chat_template_name)
        checks = True if verify is None else verify
        self._http = HttpTransport(self.base_url, api_key=api_key, verify=checks, timeout_s=timeout_s)
        super().__init__(self._http)
        event_loop_thread().wait(self._ask_for_model())

    @property
    def chat_template(self) -> ChatTemplate | None:
        """See `Backend`."""
        return self._chat_template

    async def call(self, path: str, payload: dict[str, Any]) -> Any:
        """The server's reply to a payload, on any of its paths (docs/protocol.md)."""
        return await self._http.call(path, payload)

    def stream(self, path: str, payload: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of the server's reply to a payload."""
        return self._http.stream(path, payload)

    @property
    def model_info(self) -> dict[str, Any]:
        """What the server says of its model."""
        return event_loop_thread().wait(self.get_model_info())

    def close(self) -> None:
        """Close the connections."""
        event_loop_thread().wait(self.aclose())

    async def aclose(self) -> None:
        """See `Backend`."""
        await super().aclose()
        await self._http.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _ask_for_model(self) -> None:
        try:
            await self.get_model_info()
        except BaseException:
            await self.aclose()
            raise


def _check_key(api_key: Any) -> None:
    """The message does not show the key: errors end up in logs."""
    if api_key is None or (isinstance(api_key, str) and re.fullmatch(r"[!-~]+", api_key)):
        return
    raise ArgumentError(
        "api_key is not what a header can hold; it must be visible ASCII characters without spaces and line breaks"
        " (one may have come from the end of a file)"
    )


class HttpTransport:
    """Carries payloads over HTTP/1.1 connections that are kept open.

    Args:
        base_url: Address without a slash at its end.
        api_key: Sent as a bearer token.
        verify: Whether, or with which certificates, to check the server's.
        timeout_s: Longest silence of the server.
    """

    def __init__(self, base_url: str, *, api_key: str | None, verify: bool | str, timeout_s: float | None) -> None:
        self._base_url = base_url
        # As many connections as there are requests: the server's scheduler decides what waits.
        self._client = httpx.AsyncClient(
            base_url=base_url,
            headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
            verify=ssl.create_default_context(cafile=verify) if isinstance(verify, str) else verify,
            # A proxy of the environment cannot reach servers of this machine.
            trust_env=urlsplit(base_url).hostname not in LOOPBACK_HOSTS,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
        )

    async def call(self, path: str, payload: dict[str, Any]) -> Any:
        """See `Transport`."""
        method, body = ("GET", None) if path in GET_PATHS else ("POST", payload)
        try:
            response = await self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        return _reply_of(response)

    async def stream(self, path: str, payload: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """See `Transport`."""
        try:
            async with self._client.stream("POST", path, json=payload) as response:
                if response.status_code != httpx.codes.OK:
                    await response.aread()
                    _reply_of(response)
                async for line in _lines(response):
                    if line == b"data: [DONE]":
                        return
                    if line.startswith(b"data: "):
                        yield json.loads(line[len(b"data: ") :])
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _unreachable(self, error: httpx.HTTPError) -> BackendError:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return BackendError(f"no server at {self._base_url} ({error}); start one with: sgl serve --model-path ...")
        return BackendError(f"the server at {self._base_url} broke off: {type(error).__name__}: {error}")


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Lines of a body.  Split at line feeds alone: JSON may hold other characters that Python counts as line ends."""
    rest = b""
    async for block in response.aiter_bytes():
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")
    if rest:
        yield rest


def _reply_of(response: httpx.Response) -> Any:
    try:
        reply = response.json()
    except ValueError:
        reply = response.text
    if response.status_code >= httpx.codes.BAD_REQUEST or isinstance(reply, str):
        raise error_from_reply(reply, status=response.status_code)
    return reply
