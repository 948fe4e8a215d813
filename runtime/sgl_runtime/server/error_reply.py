"""The one envelope of every error that a client sees."""

from typing import Any

from sgl_runtime.errors import SglRuntimeError


def error_object(error: SglRuntimeError) -> dict[str, Any]:
    """The JSON body for an error of the runtime."""
    return error_envelope(error.message, status=error.status, code=error.code, param=error.param)


def error_envelope(message: str, *, status: int, code: str, param: str | None = None) -> dict[str, Any]:
    """The JSON body for an error with this HTTP status."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
