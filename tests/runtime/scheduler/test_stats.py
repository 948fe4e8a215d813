"""Rates of the scheduler's log lines, by a clock that the test moves."""

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sgl_runtime.scheduler.stats import Load, SchedulerStats


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def planned(kind: str, *, size: int, admitted: list[Any] | None = None, prefill: int = 0) -> Any:
    batch = SimpleNamespace(kind=kind, size=size, extend_lens=np.array([prefill] if prefill else [1] * size))
    return SimpleNamespace(batch=batch, num_prefill=1 if prefill else 0, admitted=admitted or [])


def test_the_rate_leaves_out_idle_time_and_counts_every_token() -> None:
    clock = Clock()
    stats = SchedulerStats(decode_log_interval=4, clock=clock)
    req = SimpleNamespace(has_run=False, prompt_len=10, cached_len=3)
    for _ in range(2):
        # An hour in which nobody asks for anything.
        clock.now += 3600.0
        first = planned("extend", size=1, admitted=[req], prefill=7)
        stats.note_planned(first, Load(1, 0, 0.1))
        clock.now += 2.0
        stats.after_pass(first, Load(1, 0, 0.1), num_new=1)
        for _ in range(4):
            step = planned("decode", size=1)
            stats.note_planned(step, Load(1, 0, 0.1))
            clock.now += 0.5
            stats.after_pass(step, Load(1, 0, 0.1), num_new=1)
        assert stats.tokens_per_second == pytest.approx(5 / 4.0)
    assert (stats.prompt_tokens, stats.cached_tokens, stats.generation_tokens) == (20, 6, 10)


def test_passes_without_prompts_write_no_prefill_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sgl_runtime.scheduler.stats")
    stats = SchedulerStats(decode_log_interval=2, clock=Clock())
    for _ in range(3):
        step = planned("decode", size=2)
        stats.note_planned(step, Load(2, 1, 0.25))
        stats.after_pass(step, Load(2, 1, 0.25), num_new=2)
    (record,) = caplog.records
    assert record.getMessage().startswith("decode batch=2 generated=4 ")
    assert record.getMessage().endswith("token_usage=0.2500 running=2 queued=1")


def test_a_later_piece_of_a_prompt_brings_no_new_sequence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sgl_runtime.scheduler.stats")
    stats = SchedulerStats(decode_log_interval=2, clock=Clock())
    stats.note_planned(planned("extend", size=1, prefill=5), Load(1, 0, 0.0))
    assert caplog.records[0].getMessage().startswith("prefill new_seqs=0 new_tokens=5 cached_tokens=0 hit_rate=0.0000")
    assert stats.prompt_tokens == 0
