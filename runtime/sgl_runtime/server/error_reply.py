"""The envelopes of errors that a client sees: one for each family of paths."""

import logging
import uuid
from typing import Any

from sgl_runtime.errors import OverloadedError, SglRuntimeError

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 1
"""When a client may come back to a server that was full."""

_ANTHROPIC_PREFIX = "/v1/messages"
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_object(error: SglRuntimeError) -> dict[str, Any]:
    """The JSON body for an error of the runtime, in the envelope of the native and the OpenAI paths."""
    return error_envelope(error.message, status=error.status, code=error.code, param=error.param)


def error_envelope(message: str, *, status: int, code: str, param: str | None = None) -> dict[str, Any]:
    """The JSON body for an error with this HTTP status."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def anthropic_error(message: str, *, status: int) -> dict[str, Any]:
    """The same for the paths that Anthropic's clients use."""
    kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def is_anthropic(path: str) -> bool:
    """Whether a path is one of those that Anthropic's clients use."""
    return path == _ANTHROPIC_PREFIX or path.startswith(_ANTHROPIC_PREFIX + "/")


def http_error_body(path: str, message: str, *, status: int, code: str, param: str | None = None) -> dict[str, Any]:
    """The JSON body for an error of a path, in the envelope of the path's family."""
    if is_anthropic(path):
        return anthropic_error(message, status=status)
    return error_envelope(message, status=status, code=code, param=param)


def error_for_path(path: str, error: SglRuntimeError) -> dict[str, Any]:
    """The JSON body for an error of the runtime, in the envelope of the path's family."""
    return http_error_body(path, error.message, status=error.status, code=error.code, param=error.param)


def error_headers(error: SglRuntimeError) -> dict[str, str]:
    """Headers that go with an error."""
    if isinstance(error, OverloadedError):
        return {"retry-after": str(RETRY_AFTER_S)}
    return {"www-authenticate": "Bearer"} if error.status == 401 else {}


def internal_error(cause: Exception) -> SglRuntimeError:
    """Log a fault of ours with its traceback; what the client is told has the id under which the log has it."""
    error_id = uuid.uuid4().hex
    logger.error("internal error id=%s", error_id, exc_info=cause)
    return SglRuntimeError(f"internal error {error_id}; the server's log has the cause under this id")
