"""SchedulerStats: running totals and the log lines made of them."""

import logging
import time

from sgl_runtime.scheduler.batch_planner import PlannedPass

logger = logging.getLogger(__name__)

DECODE_LOG_INTERVAL = 40
"""Decode passes between two log lines."""


class SchedulerStats:
    """Totals since start.

    Attributes:
        prompt_tokens: Prompt tokens of requests that were prefilled, each request once.
        cached_tokens: Of these, tokens found in the prefix cache.
        generation_tokens: Generated tokens.
    """

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self._started = time.monotonic()
        self._decode_passes = 0
        self._window_start = time.monotonic()
        self._window_tokens = 0

    @property
    def uptime_seconds(self) -> float:
        """Seconds since start."""
        return time.monotonic() - self._started

    def before_extend(self, planned: PlannedPass) -> None:
        """Count a prefill pass; called before its results are applied."""
        first = [req for req in planned.reqs if not req.has_run]
        if not first:
            # Forced tokens, or requests that were retracted.
            return
        prompt, cached = sum(req.prompt_len for req in first), sum(req.cached_len for req in first)
        self.prompt_tokens += prompt
        self.cached_tokens += cached
        logger.info(
            "prefill reqs=%d new_tokens=%d cached_tokens=%d", len(planned.reqs), len(planned.batch.input_ids), cached
        )

    def after_pass(self, planned: PlannedPass, *, num_new: int, num_waiting: int, num_free: int) -> None:
        """Count generated tokens; every so often log the rate of decoding."""
        self.generation_tokens += num_new
        if planned.batch.kind == "extend":
            return
        self._decode_passes += 1
        self._window_tokens += num_new
        if self._decode_passes % DECODE_LOG_INTERVAL == 0:
            now = time.monotonic()
            rate = self._window_tokens / max(now - self._window_start, 1e-9)
            logger.info(
                "decode running=%d waiting=%d free_slots=%d tokens_per_second=%.1f",
                planned.batch.size,
                num_waiting,
                num_free,
                rate,
            )
            self._window_start, self._window_tokens = now, 0
