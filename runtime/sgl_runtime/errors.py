"""The errors of the runtime, each with the HTTP status and code that a client sees.

Bad input raises an `InvalidRequestError` and ends one request. Bad setup raises a `ConfigError` or a
`ModelLoadError` before anything is served. A broken invariant is an `assert` and ends the process.
"""

from typing import ClassVar


class SglRuntimeError(Exception):
    """Root of every error that the runtime raises on purpose.

    Attributes:
        status: HTTP status of the reply.
        code: Short machine-readable word for the reply's `code` field.
        param: Path of the request field at fault (`sampling_params.top_p`), None where no field is.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ConfigError(SglRuntimeError):
    """A start-up option is wrong or options contradict each other."""

    code = "bad_config"


class ModelLoadError(SglRuntimeError):
    """The model cannot be found, read or understood."""

    code = "model_load_failed"


class OverloadedError(SglRuntimeError):
    """The server holds as much work as it takes; try again later."""

    status = 503
    code = "overloaded"


class RequestAbortedError(SglRuntimeError):
    """The request was ended by an abort or because the client went away."""

    status = 499
    code = "aborted"


class InvalidRequestError(SglRuntimeError):
    """A field of the request is wrong."""

    status = 400
    code = "invalid_request"


class NotFoundError(InvalidRequestError):
    """What the path names does not exist, or not any more."""

    status = 404
    code = "not_found"


class AuthenticationError(InvalidRequestError):
    """The request brings no key, or one that does not open its path."""

    status = 401
    code = "invalid_api_key"


class RequestTooLargeError(InvalidRequestError):
    """The body is longer than the server takes."""

    status = 413
    code = "request_too_large"


class ContextLengthError(InvalidRequestError):
    """The prompt does not fit the context."""

    code = "context_length_exceeded"


class GrammarError(InvalidRequestError):
    """The schema, regex or list of choices cannot be enforced."""

    code = "bad_grammar"


ERRORS_BY_CODE: dict[str, type[SglRuntimeError]] = {
    cls.code: cls
    for cls in (
        SglRuntimeError,
        ConfigError,
        ModelLoadError,
        OverloadedError,
        RequestAbortedError,
        InvalidRequestError,
        ContextLengthError,
        GrammarError,
    )
}
