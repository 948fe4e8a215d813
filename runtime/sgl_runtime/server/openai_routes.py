"""HTTP routes of the OpenAI API."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from sgl_runtime.server.http_body import json_response, read_json, unless_disconnected
from sgl_runtime.server.openai_api import OpenAIApi, OpenAICall
from sgl_runtime.server.sse import event_stream


def openai_router(api: OpenAIApi) -> APIRouter:
    """The routes.

    Args:
        api: Answers them.
    """
    router = APIRouter()

    async def run(request: Request, parse: Callable[[Any], Awaitable[OpenAICall]]) -> Response:
        call = await parse(await read_json(request))
        if call.request.stream:
            return await event_stream(request.receive, api.stream(call))
        return json_response(await unless_disconnected(request.receive, api.reply(call)))

    async def completions(request: Request) -> Response:
        return await run(request, api.completion)

    async def chat_completions(request: Request) -> Response:
        return await run(request, api.chat)

    async def models() -> Response:
        return json_response(api.models())

    router.add_api_route("/v1/completions", completions, methods=["POST"])
    router.add_api_route("/v1/chat/completions", chat_completions, methods=["POST"])
    router.add_api_route("/v1/models", models, methods=["GET"])
    return router
