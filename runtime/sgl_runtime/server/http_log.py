"""A line for each HTTP request, by a logger that `logs.py` gives a level of its own."""

import logging

from sgl_runtime.server.http_call import HttpCall

logger = logging.getLogger(__name__)

PROBES = frozenset({"/health", "/ping", "/ready", "/metrics"})
"""Paths that orchestrators and monitoring ask every few seconds."""


def is_logged(call: HttpCall) -> bool:
    """Whether a request has a line."""
    return logger.isEnabledFor(_level(call))


def log_call(call: HttpCall, *, status: int, seconds: float) -> None:
    """Write the line of a request whose reply has ended.

    Args:
        call: The request.
        status: Of the reply; 0 where there was none.
        seconds: How long it took.
    """
    logger.log(
        _level(call),
        "http request method=%s path=%s status=%d seconds=%.4f client=%s request_id=%s",
        call.method,
        # The path is whatever the client sent: nothing in it may look like a line of ours.
        call.path if call.path.isprintable() and " " not in call.path else repr(call.path),
        status,
        seconds,
        call.client,
        call.request_id,
    )


def _level(call: HttpCall) -> int:
    return logging.DEBUG if call.path in PROBES else logging.INFO
