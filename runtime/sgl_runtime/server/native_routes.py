"""HTTP routes of docs/protocol.md."""

from typing import Any

from fastapi import APIRouter, Request, Response

from sgl_runtime.server.http_body import json_response, read_json, unless_disconnected
from sgl_runtime.server.native_api import NativeApi
from sgl_runtime.server.sse import event_stream


def native_router(api: NativeApi) -> APIRouter:
    """The routes.

    Args:
        api: Answers them.
    """
    router = APIRouter()

    async def answer(request: Request, payload: Any) -> Response:
        return json_response(await unless_disconnected(request.receive, api.call(request.url.path, payload)))

    async def with_body(request: Request) -> Response:
        return await answer(request, await read_json(request))

    async def without_body(request: Request) -> Response:
        await read_json(request)
        return await answer(request, None)

    async def generate(request: Request) -> Response:
        payload = await read_json(request)
        if isinstance(payload, dict) and payload.get("stream") is True:
            return await event_stream(request.receive, api.stream("/generate", payload))
        return await answer(request, payload)

    router.add_api_route("/generate", generate, methods=["POST"])
    for path in (
        "/tokenize",
        "/role_affixes",
        "/kv_events",
        "/abort_request",
        "/pause_generation",
        "/continue_generation",
        "/open_session",
        "/close_session",
    ):
        router.add_api_route(path, with_body, methods=["POST"])
    router.add_api_route("/flush_cache", with_body, methods=["GET", "POST"])
    for path in ("/health", "/get_model_info", "/get_server_info"):
        router.add_api_route(path, without_body, methods=["GET"])
    return router
