"""The HTTP application: all routes, and around them the layers that every request passes."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from sgl_runtime.config_serving import AccessConfig, ConnectionConfig
from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.server.access import AccessControl
from sgl_runtime.server.anthropic_api import AnthropicApi
from sgl_runtime.server.anthropic_routes import anthropic_routes
from sgl_runtime.server.body_limit import BodyLimit
from sgl_runtime.server.error_boundary import ErrorBoundary
from sgl_runtime.server.error_reply import error_for_path, error_headers, http_error_body
from sgl_runtime.server.http_body import json_response
from sgl_runtime.server.http_call import CurrentCall, HttpEntry, call_of
from sgl_runtime.server.http_log import HttpLog
from sgl_runtime.server.metrics_routes import metrics_routes
from sgl_runtime.server.native_api import NativeApi
from sgl_runtime.server.native_routes import native_routes
from sgl_runtime.server.openai_api import OpenAIApi
from sgl_runtime.server.openai_routes import openai_routes
from sgl_runtime.server.openapi.document import openapi_routes
from sgl_runtime.server.request_books import RequestBooks
from sgl_runtime.server.request_dump import RequestRecorder
from sgl_runtime.server.responses_api import ResponsesApi
from sgl_runtime.server.responses_routes import responses_routes
from sgl_runtime.server.route_table import table_first
from sgl_runtime.server.web_routes import WebPage


def create_app(
    api: NativeApi,
    *,
    access: AccessConfig | None = None,
    connections: ConnectionConfig | None = None,
    books: RequestBooks | None = None,
    has_web: bool = True,
) -> Starlette:
    """The application.

    Args:
        api: Answers the native paths, and the OpenAI paths through it.
        access: Who may use it; everybody by default.
        connections: What a request may take.
        books: What is written down of requests; without, there is no /metrics.
        has_web: Whether there is a web page at /.
    """
    access, connections = access or AccessConfig(), connections or ConnectionConfig()
    page = WebPage.read() if has_web else WebPage({})
    admin_paths = [path for path, found in api.paths.items() if found.is_admin]
    current = CurrentCall() if books is None else books.current
    layers = [Middleware(HttpEntry, current=current), Middleware(HttpLog)]
    if access.allowed_origins:
        layers.append(_cross_origin(access))
    layers += [
        Middleware(ErrorBoundary),
        Middleware(AccessControl, config=access, admin_paths=admin_paths, open_paths=page.paths),
        Middleware(BodyLimit, max_bytes=connections.max_request_bytes),
    ]
    if books is not None:
        layers.append(Middleware(RequestRecorder, dump=books.dump, left_out=admin_paths))
    openai = OpenAIApi(api.manager)
    routes = [
        *native_routes(api),
        *openai_routes(openai),
        *anthropic_routes(AnthropicApi(api.manager, openai.service)),
        *responses_routes(ResponsesApi(api.manager, openai.service)),
        *openapi_routes(api.paths),
        *page.routes(),
    ]
    if books is not None:
        routes += metrics_routes(books.metrics, api.manager.questions)
    return Starlette(
        routes=table_first(routes),
        middleware=layers,
        exception_handlers={SglRuntimeError: _runtime_error, HTTPException: _http_error},
    )


def _cross_origin(access: AccessConfig) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origins=access.allowed_origins,
        allow_methods=access.allowed_methods,
        allow_headers=access.allowed_headers,
        allow_credentials=access.allow_credentials,
        expose_headers=("x-request-id",),
    )


async def _runtime_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SglRuntimeError)
    body = error_for_path(call_of(request.scope).path, error)
    return json_response(body, status=error.status, headers=error_headers(error))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = call_of(request.scope).path
    what = f"{request.method} {path}"
    if error.status_code == 404:
        message, code = f"{what}: there is no such path", "not_found"
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        message, code = f"{what}: the path takes {allowed}", "method_not_allowed"
    else:
        message, code = f"{what}: {error.detail}", "invalid_request"
    body = http_error_body(path, message, status=error.status_code, code=code)
    return json_response(body, status=error.status_code, headers=dict(error.headers) if error.headers else None)
