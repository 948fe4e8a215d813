"""The OpenAPI document: every path with its bodies and replies, and the route that shows it."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette import routing
from starlette.requests import Request
from starlette.responses import Response

from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.openapi.operations import COMPONENTS, NATIVE, ROUTES, Described, Route
from sgl_runtime.server.openapi.schemas import TEXT, Schema
from sgl_runtime.version import distribution_version

_PLACES = re.compile(r"\{(\w+)\}")
_FAILURES = {
    "400": "The request is wrong; the message names the field, the value and what is allowed.",
    "401": "The key is missing or wrong.",
    "408": "The request did not come in time.",
    "413": "The body is too long.",
    "431": "The head of the request is too long.",
    "499": "The request was aborted.",
    "500": "A fault of the server; the message has the id under which its log has the cause.",
    "503": "The server holds as much as it takes, or is ending.",
}


def openapi_routes(paths: Mapping[str, NativePath]) -> list[routing.Route]:
    """The route of /openapi.json, as the only one of a list.

    Args:
        paths: The native paths.
    """
    made: list[bytes] = []

    async def show(request: Request) -> Response:
        if not made:
            made.append(msgspec.json.encode(build_document(paths)))
        return Response(made[0], media_type="application/json")

    return [
        routing.Route("/openapi.json", show, methods=["GET"]),
    ]


def build_document(paths: Mapping[str, NativePath]) -> dict[str, Any]:
    """The document.

    Args:
        paths: The native paths.
    """
    items = {path: _native_item(path, found) for path, found in paths.items()}
    for route in ROUTES:
        items.setdefault(route.path, {})[route.method] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sgl",
            "version": distribution_version(),
            "description": "A runtime for language models: its native protocol and the APIs of others.",
        },
        "security": [{}, {"bearer": []}, {"key": []}],
        "paths": items,
        "components": {
            "schemas": dict(COMPONENTS),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _native_item(path: str, found: NativePath) -> dict[str, Any]:
    shapes = NATIVE[path]
    item = {}
    for method in found.methods:
        # A GET of a path that also takes a body has none.
        taken = shapes if method == "POST" else Described(reply=shapes.reply)
        summary = (inspect.getdoc(found.answer) or "").partition("\n")[0]
        operation = _operation(Route(path=path, method=method.lower(), summary=summary, shapes=taken))
        item[method.lower()] = {**operation, **({"tags": ["admin"]} if found.is_admin else {})}
    return item


def _operation(route: Route) -> dict[str, Any]:
    path, shapes = route.path, route.shapes
    responses: dict[str, Any] = {"200": {"description": "The reply.", "content": _reply(shapes)}}
    for status, description in _FAILURES.items():
        responses[status] = {"description": description, "content": _json(route.error)}
    operation: dict[str, Any] = {
        "operationId": f"{route.method}_{path.strip('/').translate(str.maketrans('/.', '__', '{}'))}",
        "summary": route.summary,
        "tags": ["v1" if path.startswith("/v1/") else "native"],
        "responses": responses,
    }
    names = _PLACES.findall(path)
    parameters = [_parameter(name, "path", {**TEXT, "minLength": 1}) for name in names]
    parameters += [_parameter(name, "query", schema) for name, schema in route.query.items()]
    if parameters:
        operation["parameters"] = parameters
    if names:
        responses["404"] = {"description": "There is none of this name.", "content": _json(route.error)}
    if shapes.body is not None:
        operation["requestBody"] = {"required": shapes.needs_body, "content": _json(shapes.body)}
    return operation


def _reply(shapes: Described) -> dict[str, Any]:
    if shapes.reply is None:
        return {"text/plain": {"schema": TEXT}}
    content = _json(shapes.reply)
    if shapes.event is not None:
        content["text/event-stream"] = {
            "schema": {
                "type": "string",
                "description": "With stream: true. Each event has a line `data: ` and a JSON object.",
                "contentMediaType": "application/json",
                "contentSchema": shapes.event,
            }
        }
    return content


def _parameter(name: str, place: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
