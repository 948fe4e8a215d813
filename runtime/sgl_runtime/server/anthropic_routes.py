"""HTTP routes of Anthropic's API."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.server.anthropic_api import AnthropicApi
from sgl_runtime.server.departure import unless_departed
from sgl_runtime.server.error_reply import anthropic_error
from sgl_runtime.server.http_body import json_response, read_json
from sgl_runtime.server.openai_routes import answer
from sgl_runtime.server.sse import EventForm, named_event


def _error_event(error: SglRuntimeError) -> dict[str, object]:
    return anthropic_error(error.message, status=error.status)


_EVENTS = EventForm(write=named_event, error=_error_event, end=b"", ping=named_event({"type": "ping"}))


def anthropic_routes(api: AnthropicApi) -> list[Route]:
    """The routes.

    Args:
        api: Answers them.
    """

    async def messages(request: Request) -> Response:
        return await answer(request, api, _EVENTS)

    async def count_tokens(request: Request) -> Response:
        payload = await read_json(request)
        return json_response(await unless_departed(request.scope, api.count_tokens(payload)))

    return [
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    ]
