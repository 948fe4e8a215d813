"""ServerMetrics: what /metrics shows, mostly by the names that users of SGLang know, with prefix `sgl:`."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from sgl_runtime.ipc.messages import TextDelta
from sgl_runtime.server.distribution import Distribution
from sgl_runtime.server.request_watch import WatchedRequest

PREFIX = "sgl:"

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
_SIZES = (1, 8, 32, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)

_COUNTS = {
    "num_requests_received_total": "Requests sent to the scheduler",
    "num_aborted_requests_total": "Requests ended by an abort, an error or a client that left",
    "prompt_tokens_total": "Prompt tokens",
    "cached_tokens_total": "Prompt tokens found in the prefix cache",
    "generation_tokens_total": "Generated tokens",
}
_DISTRIBUTIONS = {
    "time_to_first_token_seconds": ("From the request to its first token", _LONG),
    "inter_token_latency_seconds": ("Between tokens that follow each other", _SHORT),
    "e2e_request_latency_seconds": ("From the request to the end of its reply", _LONG),
    "queue_time_seconds": ("From the request to its first pass", _LONG),
    "time_per_output_token_seconds": ("Time after the first token by the number of further tokens", _SHORT),
    "prompt_tokens_histogram": ("Prompt tokens of a request", _SIZES),
    "generation_tokens_histogram": ("Generated tokens of a request", _SIZES),
}

GAUGES: Mapping[str, tuple[str, str]] = {
    "num_running_reqs": ("num_running", "Requests that run"),
    "num_queue_reqs": ("num_waiting", "Requests that wait, for their grammar or for a pass"),
    "num_grammar_queue_reqs": ("num_grammar_queue", "Requests whose grammar is compiled"),
    "token_usage": ("token_usage", "Share of the token slots that running requests hold"),
    "num_used_tokens": ("num_used_tokens", "Token slots that running requests hold"),
    "max_total_num_tokens": ("total_slots", "Token slots"),
    "num_cached_tokens": ("cached_slots", "Token slots that the prefix cache holds"),
    "num_host_cached_tokens": ("host_cached_slots", "Tokens of the prefix cache in host memory"),
    "gen_throughput": ("gen_throughput", "Generated tokens a second in the last window with work; 0 when idle"),
    "cache_hit_rate": ("cache_hit_rate", "Share of all prompt tokens that were found in the prefix cache"),
    "num_retracted_reqs": ("num_retracted_total", "Running requests sent back to waiting, since start"),
    "num_sessions": ("num_sessions", "Open sessions"),
    "num_failed_idle_checks": ("failed_idle_checks_total", "Idle checks that found token slots missing, since start"),
}
"""Gauges made of the scheduler's counters: the field of these, and a help text."""


class ServerMetrics:
    """Counts requests in the API process; the scheduler's counters come in at each scrape.

    Args:
        registry: Where the metrics are registered; one of the server's own.
        model_name: Value of the label `model_name`, which every metric has.
    """

    def __init__(self, registry: CollectorRegistry, *, model_name: str) -> None:
        self.registry = registry
        self._scheduler = _SchedulerMetrics(model_name)
        self._model_name = model_name
        self._ended: dict[str, int] = {}
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._distributions = {name: Distribution(bounds) for name, (_, bounds) in _DISTRIBUTIONS.items()}
        for collector in (self._scheduler, self):
            registry.register(collector)

    def collect(self) -> Iterable[Metric]:
        """What was counted here, for a scrape."""
        labels, values = ("model_name",), (self._model_name,)
        ended = CounterMetricFamily(
            PREFIX + "num_requests_total", "Requests that have ended", labels=(*labels, "finish_reason")
        )
        for reason, count in self._ended.items():
            ended.add_metric((*values, reason), count)
        yield ended
        for name, help_text in _COUNTS.items():
            family = CounterMetricFamily(PREFIX + name, help_text, labels=labels)
            family.add_metric(values, self._counts[name])
            yield family
        for name, (help_text, _) in _DISTRIBUTIONS.items():
            histogram = HistogramMetricFamily(PREFIX + name, help_text, labels=labels)
            distribution = self._distributions[name]
            histogram.add_metric(values, distribution.cumulated(), distribution.sum)
            yield histogram

    describe = collect

    def set_scheduler_counters(self, counters: Mapping[str, Any] | None) -> None:
        """What the scheduler said just now; None where it did not answer in time."""
        self._scheduler.counters = counters

    def received(self, request: WatchedRequest) -> None:
        """See `RequestWatcher`."""
        self._counts["num_requests_received_total"] += 1

    def count_first(self, request: WatchedRequest, delta: TextDelta) -> None:
        """See `TokenCounter`."""
        self._distributions["time_to_first_token_seconds"].add(request.first_at - request.pending.started_at)
        self._counts["generation_tokens_total"] += len(delta.new_ids)
        self._count_prompt(delta)

    def count_next(self, num_tokens: int, seconds: float) -> None:
        """See `TokenCounter`."""
        self._counts["generation_tokens_total"] += num_tokens
        self._distributions["inter_token_latency_seconds"].add(seconds / num_tokens)

    def ended(self, request: WatchedRequest, *, reason: str) -> None:
        """See `RequestWatcher`."""
        now = time.monotonic()
        self._ended[reason] = self._ended.get(reason, 0) + 1
        if reason not in ("stop", "length"):
            self._counts["num_aborted_requests_total"] += 1
            return
        if not request.first_at and request.pending.last is not None:
            # It asked for no token.
            self._count_prompt(request.pending.last)
        self._distributions["e2e_request_latency_seconds"].add(now - request.pending.started_at)
        num_output = request.pending.num_output
        self._distributions["generation_tokens_histogram"].add(num_output)
        if num_output > 1:
            seconds = (request.last_at - request.first_at) / (num_output - 1)
            self._distributions["time_per_output_token_seconds"].add(seconds)

    def _count_prompt(self, delta: TextDelta) -> None:
        """Count a prompt that was computed, once."""
        self._distributions["queue_time_seconds"].add(delta.queue_time)
        self._counts["prompt_tokens_total"] += delta.prompt_tokens
        self._counts["cached_tokens_total"] += delta.cached_tokens
        self._distributions["prompt_tokens_histogram"].add(delta.prompt_tokens)


class _SchedulerMetrics:
    """Gauges made of the scheduler's counters.

    Args:
        model_name: Value of the label.

    Attributes:
        counters: By the names of docs/protocol.md; None where there are none.
    """

    def __init__(self, model_name: str) -> None:
        self.counters: Mapping[str, Any] | None = None
        self._model_name = model_name

    def collect(self) -> Iterable[Metric]:
        """The gauges, for a scrape."""
        yield self._gauge(
            "scheduler_answered", "1 where the scheduler answered this scrape in time", self.counters is not None
        )
        if self.counters is None:
            return
        values = {**_derived(self.counters), **self.counters}
        for name, (field, help_text) in GAUGES.items():
            if field in values:
                yield self._gauge(name, help_text, values[field])

    def _gauge(self, name: str, help_text: str, value: float) -> Metric:
        family = GaugeMetricFamily(PREFIX + name, help_text, labels=("model_name",))
        family.add_metric((self._model_name,), value)
        return family


def _derived(counters: Mapping[str, Any]) -> dict[str, float]:
    """What follows from the counters; those that are missing count as 0."""
    prompt = counters.get("prompt_tokens_total", 0)
    is_busy = counters.get("num_running", 0) > 0
    return {
        "num_used_tokens": round(counters.get("token_usage", 0.0) * counters.get("total_slots", 0)),
        "gen_throughput": counters.get("last_gen_throughput", 0.0) if is_busy else 0.0,
        "cache_hit_rate": counters.get("cached_tokens_total", 0) / prompt if prompt else 0.0,
    }
