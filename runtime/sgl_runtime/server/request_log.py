"""RequestLog: a log line for each request when it is received, and one when it has ended."""

import logging

from sgl_runtime.ipc.messages import TokenizedRequest
from sgl_runtime.server.pending_reply import PendingReply

logger = logging.getLogger(__name__)


class RequestLog:
    """Writes lines if it is switched on; they hold no text.

    Args:
        is_on: Whether it is.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on

    def received(self, message: TokenizedRequest) -> None:
        """A request goes to the scheduler."""
        if self._is_on:
            logger.info(
                "request received rid=%r prompt_tokens=%d max_new_tokens=%s priority=%d session=%s",
                message.rid,
                len(message.input_ids),
                message.sampling.max_new_tokens,
                message.priority,
                None if message.session is None else message.session.id,
            )

    def ended(self, pending: PendingReply, *, reason: str) -> None:
        """A request has its answer, or nobody waits for it any more."""
        if self._is_on:
            meta = pending.meta_info()
            logger.info(
                "request ended rid=%r reason=%s prompt_tokens=%d cached_tokens=%d generated_tokens=%d seconds=%.4f",
                pending.request.rid,
                reason,
                meta["prompt_tokens"],
                meta["cached_tokens"],
                meta["completion_tokens"],
                meta["e2e_latency"],
            )
