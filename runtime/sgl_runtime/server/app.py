"""The HTTP application: all routes, and one envelope for every error."""

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.server.error_reply import error_envelope, error_object
from sgl_runtime.server.http_body import json_response
from sgl_runtime.server.native_api import NativeApi
from sgl_runtime.server.native_routes import native_router
from sgl_runtime.server.openai_api import OpenAIApi
from sgl_runtime.server.openai_routes import openai_router


def create_app(api: NativeApi) -> FastAPI:
    """The application.

    Args:
        api: Answers the native paths, and the OpenAI paths through it.
    """
    app = FastAPI(openapi_url=None)
    app.include_router(native_router(api))
    app.include_router(openai_router(OpenAIApi(api.manager)))
    app.add_exception_handler(SglRuntimeError, _runtime_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)
    return app


async def _runtime_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SglRuntimeError)
    return json_response(error_object(error), status=error.status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}"
    if error.status_code == 404:
        message, code = f"{what}: there is no such path", "not_found"
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        message, code = f"{what}: the path takes {allowed}", "method_not_allowed"
    else:
        message, code = f"{what}: {error.detail}", "invalid_request"
    headers = dict(error.headers) if error.headers else None
    return json_response(
        error_envelope(message, status=error.status_code, code=code), status=error.status_code, headers=headers
    )


async def _unexpected_error(request: Request, error: Exception) -> Response:
    # The server logs the traceback; the client learns no internals.
    return json_response(error_object(SglRuntimeError("internal error; the server's log has the cause")), status=500)
