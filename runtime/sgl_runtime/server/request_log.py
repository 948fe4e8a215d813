"""RequestLog: a log line for each request when it is received, and one when it has ended."""

import logging
from typing import Any

from msgspec import structs

from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.server.request_watch import WatchedRequest

logger = logging.getLogger(__name__)

SHORT_TEXT = 2048
"""Characters of prompt and output in a line of level 2."""

WITH_SAMPLING, WITH_SHORT_TEXT, WITH_TEXT = 1, 2, 3
"""From which level on lines hold what."""


class RequestLog:
    """Writes lines while it is switched on.

    Args:
        is_on: Whether it is.
        level: What they hold: see `--log-requests-level`.

    Attributes:
        is_on, level: May be changed at any time.
    """

    def __init__(self, *, is_on: bool, level: int = 0) -> None:
        self.is_on = is_on
        self.level = level

    def received(self, request: WatchedRequest) -> None:
        """See `RequestWatcher`."""
        if not self.is_on:
            return
        message = request.message
        logger.info(
            "request received rid=%r prompt_tokens=%d max_new_tokens=%s priority=%d session=%s request_id=%s%s",
            message.rid,
            message.num_prompt_tokens,
            message.sampling.max_new_tokens,
            message.priority,
            None if message.session is None else message.session.id,
            _request_id(request),
            self._prompt_details(request),
        )

    def ended(self, request: WatchedRequest, *, reason: str) -> None:
        """See `RequestWatcher`."""
        if not self.is_on:
            return
        meta = request.pending.meta_info()
        first_s = request.first_at - request.pending.started_at if request.first_at else 0.0
        logger.info(
            "request ended rid=%r reason=%s prompt_tokens=%d cached_tokens=%d generated_tokens=%d seconds=%.4f"
            " queue_seconds=%.4f first_token_seconds=%.4f request_id=%s%s",
            request.message.rid,
            reason,
            meta["prompt_tokens"],
            meta["cached_tokens"],
            meta["completion_tokens"],
            meta["e2e_latency"],
            request.queue_time,
            first_s,
            _request_id(request),
            f" output={self._cut(request.pending.text)!r}" if self.level >= WITH_SHORT_TEXT else "",
        )

    def _prompt_details(self, request: WatchedRequest) -> str:
        if self.level < WITH_SAMPLING:
            return ""
        details = f" sampling={changed_fields(request.message.sampling)}"
        if self.level < WITH_SHORT_TEXT:
            return details
        text = request.pending.request.text
        return details + (
            f" input_ids={len(request.message.input_ids)}" if text is None else f" text={self._cut(text)!r}"
        )

    def _cut(self, text: str) -> str:
        return text if self.level >= WITH_TEXT or len(text) <= SHORT_TEXT else text[:SHORT_TEXT] + "..."


def changed_fields(sampling: SamplingParams) -> dict[str, Any]:
    """The settings that differ from their defaults."""
    values = structs.asdict(sampling)
    return {field.name: values[field.name] for field in structs.fields(sampling) if values[field.name] != field.default}


def _request_id(request: WatchedRequest) -> str:
    return "-" if request.call is None else request.call.request_id
