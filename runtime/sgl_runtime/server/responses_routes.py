"""HTTP routes of /v1/responses."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sgl_runtime.errors import InvalidRequestError, SglRuntimeError
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.departure import unless_departed
from sgl_runtime.server.http_body import json_response, read_json
from sgl_runtime.server.openai_routes import answer
from sgl_runtime.server.responses_api import ResponsesApi
from sgl_runtime.server.responses_items import Item
from sgl_runtime.server.sse import EventForm, event_stream, named_event

MAX_PAGE = 100
_DEFAULT_PAGE = 20


def _error_event(error: SglRuntimeError) -> bytes:
    return named_event({"type": "error", "code": error.code, "message": error.message, "param": error.param})


_EVENTS = EventForm(write=bytes, error=_error_event, end=b"")


def responses_routes(api: ResponsesApi) -> list[Route]:
    """The routes.

    Args:
        api: Answers them.
    """

    async def create(request: Request) -> Response:
        return await answer(request, api, _EVENTS)

    async def count(request: Request) -> Response:
        payload = await read_json(request)
        return json_response(await unless_departed(request.scope, api.count_tokens(payload)))

    async def retrieve(request: Request) -> Response:
        after = _number(request, "starting_after", default=-1, low=0)
        stream = request.query_params.get("stream", "false")
        if stream not in ("true", "false"):
            raise reject("stream", stream, "true or false")
        if stream == "false":
            return json_response(api.retrieve(_id(request)))
        await request.body()
        return await event_stream(request.scope, api.follow(_id(request), after=after), _EVENTS)

    async def delete(request: Request) -> Response:
        return json_response(await api.delete(_id(request)))

    async def cancel(request: Request) -> Response:
        return json_response(await api.cancel(_id(request)))

    async def input_items(request: Request) -> Response:
        return json_response(_page(request, api.input_items(_id(request))))

    return [
        Route("/v1/responses", create, methods=["POST"]),
        Route("/v1/responses/input_tokens", count, methods=["POST"]),
        Route("/v1/responses/{response_id}", retrieve, methods=["GET"]),
        Route("/v1/responses/{response_id}", delete, methods=["DELETE"]),
        Route("/v1/responses/{response_id}/cancel", cancel, methods=["POST"]),
        Route("/v1/responses/{response_id}/input_items", input_items, methods=["GET"]),
    ]


def _id(request: Request) -> str:
    response_id: str = request.path_params["response_id"]
    return response_id


def _page(request: Request, items: list[Item]) -> dict[str, Any]:
    """A part of a list of items, by the parameters that the request has."""
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise reject("order", order, '"asc" or "desc"')
    limit = _number(request, "limit", default=_DEFAULT_PAGE, low=1, high=MAX_PAGE)
    ordered = items if order == "asc" else items[::-1]
    after = request.query_params.get("after")
    begin = 0
    if after is not None:
        ids = [item["id"] for item in ordered]
        if after not in ids:
            raise InvalidRequestError(
                f"after is {after[:80]!r}; it must be the id of an item of the list", param="after"
            )
        begin = ids.index(after) + 1
    data = ordered[begin : begin + limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": begin + limit < len(ordered),
    }


def _number(request: Request, name: str, *, default: int, low: int, high: int = 2**31 - 1) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 10 or not low <= int(text) <= high:
        raise reject(name, text, f"an integer from {low} to {high}")
    return int(text)
