"""HttpAnswer: the inner layer of the HTTP application: checks a request, runs its endpoint, sends what that gave."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.server.access import AccessControl
from sgl_runtime.server.body_limit import BodyLimit
from sgl_runtime.server.error_reply import error_for_path, error_headers, http_error_body, internal_error
from sgl_runtime.server.http_body import json_response
from sgl_runtime.server.http_call import HttpCall, call_of
from sgl_runtime.server.request_dump import RequestRecorder
from sgl_runtime.server.route_table import RouteTable


class HttpAnswer:
    """Answers requests; whatever goes wrong becomes a reply in the envelope of its path's family.

    Args:
        routes: Who answers what.
        access: Who may ask what.
        body_limit: How long a body may be.
        recorder: Writes requests down; None where nobody does.
    """

    def __init__(
        self,
        routes: RouteTable,
        *,
        access: AccessControl,
        body_limit: BodyLimit,
        recorder: RequestRecorder | None = None,
    ) -> None:
        self._routes = routes
        self._access = access
        self._body_limit = body_limit
        self._recorder = recorder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        call = call_of(scope)
        try:
            self._access.check(scope)
            receive = self._body_limit.enforced(call, receive)
        except SglRuntimeError as error:
            await _error_response(call, error)(scope, receive, send)
            return
        if self._recorder is None or not self._recorder.records(call):
            await self._run(scope, receive, send)
        else:
            with self._recorder.recording(call, receive, send) as (receive, send):
                await self._run(scope, receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._routes.find(scope)(Request(scope, receive))
        except SglRuntimeError as error:
            response = _error_response(call_of(scope), error)
        except HTTPException as error:
            response = _http_error(call_of(scope), error)
        except Exception as error:
            response = _error_response(call_of(scope), internal_error(error))
        try:
            await response(scope, receive, send)
        except Exception as error:
            # It has begun and cannot become another one: it is cut off, which the server does where nothing ends it.
            internal_error(error)


def _error_response(call: HttpCall, error: SglRuntimeError) -> Response:
    return json_response(error_for_path(call.path, error), status=error.status, headers=error_headers(error))


def _http_error(call: HttpCall, error: HTTPException) -> Response:
    what = f"{call.method} {call.path}"
    if error.status_code == 404:
        message, code = f"{what}: there is no such path", "not_found"
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        message, code = f"{what}: the path takes {allowed}", "method_not_allowed"
    else:
        message, code = f"{what}: {error.detail}", "invalid_request"
    body = http_error_body(call.path, message, status=error.status_code, code=code)
    return json_response(body, status=error.status_code, headers=dict(error.headers) if error.headers else None)
