"""SchedulerStats: running totals and the log lines made of them."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from sgl_runtime.scheduler.batch_builder import PlannedPass

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Load:
    """What the scheduler holds at a moment.

    Attributes:
        num_running, num_waiting: Requests.
        token_usage: Share of the slots that running requests hold, with prefixes that are locked for them.
    """

    num_running: int
    num_waiting: int
    token_usage: float


class SchedulerStats:
    """Totals since start, and a log line for each pass over prompts and for every so many decode passes.

    Args:
        decode_log_interval: Decode passes between two log lines.
        clock: Gives seconds.

    Attributes:
        prompt_tokens: Prompt tokens of requests that were prefilled, each request once.
        cached_tokens: Of these, tokens found in the prefix cache.
        generation_tokens: Generated tokens.
        num_failed_checks: Idle checks that found slots or rows missing.
        tokens_per_second: Generated tokens in the seconds of the last window in which there was work.
    """

    def __init__(self, *, decode_log_interval: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.num_failed_checks = 0
        self.tokens_per_second = 0.0
        self._interval = decode_log_interval
        self._clock = clock
        self._started = self._last_pass = clock()
        self._decode_passes = 0
        self._window_tokens = 0
        self._window_seconds = 0.0

    @property
    def uptime_seconds(self) -> float:
        """Seconds since start."""
        return self._clock() - self._started

    def note_planned(self, planned: PlannedPass, load: Load) -> None:
        """Count the prompts that begin to be computed.

        Args:
            planned: The pass.
            load: With the requests of this pass.
        """
        if load.num_running == len(planned.admitted):
            # Nobody ran before: the time until now was idle.
            self._last_pass = self._clock()
        new_tokens = int(planned.batch.extend_lens[: planned.num_prefill].sum())
        if not new_tokens:
            return
        first = [req for req in planned.admitted if not req.has_run]
        prompt, cached = sum(req.prompt_len for req in first), sum(req.cached_len for req in first)
        self.prompt_tokens += prompt
        self.cached_tokens += cached
        logger.info(
            "prefill new_seqs=%d new_tokens=%d cached_tokens=%d hit_rate=%.4f token_usage=%.4f running=%d queued=%d",
            len(first),
            new_tokens,
            cached,
            cached / prompt if prompt else 0.0,
            load.token_usage,
            load.num_running,
            load.num_waiting,
        )

    def after_pass(self, planned: PlannedPass, load: Load, *, num_new: int) -> None:
        """Count generated tokens; every so often log the rate.

        Args:
            planned: The pass.
            load: Once it has been applied.
            num_new: Tokens that it gave, forced ones included.
        """
        now = self._clock()
        self.generation_tokens += num_new
        self._window_tokens += num_new
        self._window_seconds += now - self._last_pass
        self._last_pass = now
        if planned.batch.kind == "extend":
            return
        self._decode_passes += 1
        if self._decode_passes % self._interval:
            return
        self.tokens_per_second = self._window_tokens / max(self._window_seconds, 1e-9)
        logger.info(
            "decode batch=%d generated=%d tokens_per_second=%.1f token_usage=%.4f running=%d queued=%d",
            planned.batch.size,
            self._window_tokens,
            self.tokens_per_second,
            load.token_usage,
            load.num_running,
            load.num_waiting,
        )
        self._window_tokens, self._window_seconds = 0, 0.0
