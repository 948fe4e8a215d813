"""What a load test found: throughput, and percentiles of what clients wait for."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from sgl_runtime.load_test.client import Outcome


@dataclass(frozen=True, kw_only=True)
class Percentiles:
    """Of one kind of wait, in milliseconds."""

    mean: float
    median: float
    p90: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Percentiles | None":
        """None where there is nothing to measure."""
        if not seconds:
            return None
        values = np.asarray(seconds) * 1e3
        median, p90, p99 = (float(value) for value in np.percentile(values, (50, 90, 99)))
        return cls(mean=float(values.mean()), median=median, p90=p90, p99=p99)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The whole of it.

    Attributes:
        num_requests, num_failed: How many were sent, and how many had no whole answer.
        seconds: From the first that was sent to the last that ended.
        prompt_tokens, cached_tokens, output_tokens: Sums over those that were answered.
        ttft: Time to the first token.
        itl: Between one event with text and the next.
        tpot: For each output token behind the first.
        e2e: The whole answer.
        client_share: Share of one core that the client itself took; near 1 it is what was measured.
        errors: The different errors, and how often each came.
    """

    num_requests: int
    num_failed: int
    seconds: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft: Percentiles | None
    itl: Percentiles | None
    tpot: Percentiles | None
    e2e: Percentiles | None
    client_share: float
    errors: dict[str, int]

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], *, client_cpu_s: float) -> "Report":
        """Sum up what became of the requests.

        Args:
            outcomes: All of them, at least one.
            client_cpu_s: CPU time of this process meanwhile.
        """
        good = [outcome for outcome in outcomes if outcome.error is None]
        seconds = max(outcome.ended for outcome in outcomes) - min(outcome.sent for outcome in outcomes)
        errors: dict[str, int] = {}
        for outcome in outcomes:
            if outcome.error is not None:
                errors[outcome.error] = errors.get(outcome.error, 0) + 1
        streamed = [outcome for outcome in good if outcome.arrivals]
        gaps = [later - earlier for outcome in streamed for earlier, later in pairwise(outcome.arrivals)]
        return cls(
            num_requests=len(outcomes),
            num_failed=len(outcomes) - len(good),
            seconds=seconds,
            prompt_tokens=sum(outcome.prompt_tokens for outcome in good),
            cached_tokens=sum(outcome.cached_tokens for outcome in good),
            output_tokens=sum(outcome.output_tokens for outcome in good),
            ttft=Percentiles.of([outcome.arrivals[0] - outcome.sent for outcome in streamed]),
            itl=Percentiles.of(gaps),
            tpot=Percentiles.of(
                [
                    (outcome.ended - outcome.arrivals[0]) / (outcome.output_tokens - 1)
                    for outcome in streamed
                    if outcome.output_tokens > 1
                ]
            ),
            e2e=Percentiles.of([outcome.ended - outcome.sent for outcome in good]),
            client_share=client_cpu_s / seconds if seconds else 0.0,
            errors=errors,
        )

    def as_json(self) -> dict[str, Any]:
        """All figures, throughput among them."""
        return {**asdict(self), **self.throughput()}

    def throughput(self) -> dict[str, float]:
        """A second, over the whole test."""
        num_good = self.num_requests - self.num_failed
        return {
            "requests_per_second": num_good / self.seconds,
            "output_tokens_per_second": self.output_tokens / self.seconds,
            "total_tokens_per_second": (self.prompt_tokens + self.output_tokens) / self.seconds,
        }
