"""The HTTP application: all routes, and around them the layers that every request passes."""

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp

from sgl_runtime.config_serving import AccessConfig, ConnectionConfig
from sgl_runtime.server.access import AccessControl
from sgl_runtime.server.anthropic_api import AnthropicApi
from sgl_runtime.server.anthropic_routes import anthropic_routes
from sgl_runtime.server.body_limit import BodyLimit
from sgl_runtime.server.http_answer import HttpAnswer
from sgl_runtime.server.http_call import ANTHROPIC_ID_HEADER, REQUEST_ID_HEADER, CurrentCall
from sgl_runtime.server.http_entry import HttpEntry
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
from sgl_runtime.server.route_table import RouteTable
from sgl_runtime.server.web_routes import WebPage


def create_app(
    api: NativeApi,
    *,
    access: AccessConfig | None = None,
    connections: ConnectionConfig | None = None,
    books: RequestBooks | None = None,
    has_web: bool = True,
) -> HttpEntry:
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
    answer: ASGIApp = HttpAnswer(
        RouteTable(all_routes(api, page, books)),
        access=AccessControl(access, admin_paths=admin_paths, open_paths=page.paths),
        body_limit=BodyLimit(connections.max_request_bytes),
        recorder=None if books is None else RequestRecorder(books.dump, left_out=admin_paths),
    )
    if access.allowed_origins:
        answer = CORSMiddleware(
            answer,
            allow_origins=access.allowed_origins,
            allow_methods=access.allowed_methods,
            allow_headers=access.allowed_headers,
            allow_credentials=access.allow_credentials,
            expose_headers=(REQUEST_ID_HEADER.decode(), ANTHROPIC_ID_HEADER.decode()),
        )
    return HttpEntry(answer, current=CurrentCall() if books is None else books.current)


def all_routes(api: NativeApi, page: WebPage, books: RequestBooks | None) -> list[Route]:
    """Every path that the server answers; `create_app` says what of."""
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
    return routes
