"""HTTP routes of docs/protocol.md."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sgl_runtime.server.departure import unless_departed
from sgl_runtime.server.http_body import json_response, read_json
from sgl_runtime.server.native_api import NativeApi
from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.sse import event_stream


def native_routes(api: NativeApi) -> list[Route]:
    """The routes.

    Args:
        api: Answers them.
    """

    async def generate(request: Request) -> Response:
        payload = await read_json(request)
        if isinstance(payload, dict) and payload.get("stream") is True:
            return await event_stream(request.scope, api.stream("/generate", payload))
        return await _answer(api.paths["/generate"], request, payload)

    return [
        Route(path, generate if path == "/generate" else _endpoint(found), methods=list(found.methods))
        for path, found in api.paths.items()
    ]


def _endpoint(path: NativePath) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        payload = await read_json(request)
        return await _answer(path, request, payload if path.takes_body else None)

    return endpoint


async def _answer(path: NativePath, request: Request, payload: Any) -> Response:
    return json_response(await unless_departed(request.scope, path.answer(payload)))
