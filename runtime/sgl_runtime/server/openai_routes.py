"""HTTP routes of the OpenAI API."""

from collections.abc import AsyncGenerator
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sgl_runtime.server.departure import unless_departed
from sgl_runtime.server.error_reply import error_envelope
from sgl_runtime.server.http_body import json_response, read_json
from sgl_runtime.server.openai_api import OpenAIApi
from sgl_runtime.server.sse import PLAIN_EVENTS, EventForm, event_stream


class Prepared(Protocol):
    """A checked request."""

    @property
    def stream(self) -> bool:
        """Whether the reply is a stream."""


P = TypeVar("P", bound=Prepared)


class Endpoint(Protocol[P]):
    """What answers a path, at once or in chunks."""

    async def prepare(self, payload: Any) -> P:
        """Check a body."""

    async def reply(self, prepared: P) -> dict[str, Any]:
        """The whole reply."""

    def stream(self, prepared: P) -> AsyncGenerator[Any, None]:
        """The reply in chunks."""


async def answer(request: Request, endpoint: Endpoint[P], form: EventForm = PLAIN_EVENTS) -> Response:
    """The response of an endpoint to an HTTP request.

    Args:
        request: The request.
        endpoint: Answers it.
        form: How a stream is written.

    Raises:
        SglRuntimeError: the body is wrong, or the request failed before its reply began.
    """
    prepared = await endpoint.prepare(await read_json(request))
    if prepared.stream:
        return await event_stream(request.scope, endpoint.stream(prepared), form)
    return json_response(await unless_departed(request.scope, endpoint.reply(prepared)))


def openai_routes(api: OpenAIApi) -> list[Route]:
    """The routes.

    Args:
        api: Answers them.
    """

    async def completions(request: Request) -> Response:
        return await answer(request, api.completions)

    async def chat_completions(request: Request) -> Response:
        return await answer(request, api.chat)

    async def models(request: Request) -> Response:
        return json_response(api.models())

    async def model(request: Request) -> Response:
        name = request.path_params["name"]
        found = api.model(name)
        if found is not None:
            return json_response(found)
        message = f"the model {name!r} is not served; /v1/models lists those that are"
        return json_response(error_envelope(message, status=404, code="model_not_found", param="model"), status=404)

    return [
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name:path}", model, methods=["GET"]),
    ]
