"""RequestTraces: a span for each request, by the semantic conventions of OpenTelemetry for generative AI."""

import time
from typing import TYPE_CHECKING, Any

from sgl_runtime.errors import ConfigError
from sgl_runtime.server.request_watch import WatchedRequest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_CHAT_PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
_GOOD_ENDS = ("stop", "length")


class RequestTraces:
    """Makes a span of each request when it has ended.

    Args:
        provider: Where spans go.
        model_name: Name of the served model.
    """

    def __init__(self, provider: "TracerProvider", *, model_name: str) -> None:
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("sgl_runtime")
        self._model_name = model_name
        self._propagator = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER
        self._error = StatusCode.ERROR
        # Spans carry the time of day, requests the clock that never jumps.
        self._clock_offset = time.time() - time.monotonic()

    def received(self, request: WatchedRequest) -> None:
        """See `RequestWatcher`; the span is made at the end."""

    def ended(self, request: WatchedRequest, *, reason: str) -> None:
        """See `RequestWatcher`."""
        call = request.call
        carrier = {} if call is None or call.traceparent is None else {"traceparent": call.traceparent}
        operation = "chat" if call is not None and call.path in _CHAT_PATHS else "text_completion"
        ended_at = time.monotonic()
        span = self._tracer.start_span(
            f"{operation} {self._model_name}",
            context=self._propagator.extract(carrier),
            kind=self._kind,
            start_time=self._nanoseconds(request.pending.started_at),
            attributes=self._attributes(request, operation, reason, ended_at),
        )
        span.add_event("queued", timestamp=self._nanoseconds(request.sent_at))
        if request.first_at:
            span.add_event("scheduled", timestamp=self._nanoseconds(request.sent_at + request.queue_time))
            span.add_event("first_token", timestamp=self._nanoseconds(request.first_at))
        if reason not in _GOOD_ENDS:
            span.set_status(self._error, reason)
        span.end(self._nanoseconds(ended_at))

    def close(self) -> None:
        """Send what has not been sent."""
        self._provider.shutdown()

    def _attributes(self, request: WatchedRequest, operation: str, reason: str, ended_at: float) -> dict[str, Any]:
        pending, sampling = request.pending, request.message.sampling
        started_at = pending.started_at
        cached = 0 if pending.last is None else pending.last.cached_tokens
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "sgl",
            "gen_ai.request.model": self._model_name,
            "gen_ai.response.model": self._model_name,
            "gen_ai.response.id": pending.request.client_rid,
            "gen_ai.response.finish_reasons": (reason,),
            "gen_ai.request.max_tokens": sampling.max_new_tokens or 0,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.top_k": float(sampling.top_k),
            "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
            "gen_ai.request.presence_penalty": sampling.presence_penalty,
            "gen_ai.request.stop_sequences": tuple(sampling.stop),
            "gen_ai.usage.input_tokens": len(pending.input_ids),
            "gen_ai.usage.output_tokens": pending.num_output,
            "gen_ai.usage.cache_read.input_tokens": cached,
            "gen_ai.latency.e2e": ended_at - started_at,
        }
        if request.first_at:
            attributes["gen_ai.latency.time_in_queue"] = request.queue_time
            attributes["gen_ai.latency.time_to_first_token"] = request.first_at - started_at
        if sampling.sampling_seed is not None:
            attributes["gen_ai.request.seed"] = sampling.sampling_seed
        if request.call is not None:
            attributes["http.request.id"] = request.call.request_id
            attributes["url.path"] = request.call.path
        if reason not in _GOOD_ENDS:
            attributes["error.type"] = reason
        return attributes

    def _nanoseconds(self, moment: float) -> int:
        return int((moment + self._clock_offset) * 1e9)


def open_traces(endpoint: str, *, model_name: str) -> RequestTraces:
    """Traces that are sent to a collector, in a thread of their own.

    Args:
        endpoint: URL that takes OTLP over HTTP.
        model_name: Name of the served model.

    Raises:
        ConfigError: the packages for it are not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"otlp_traces_endpoint needs packages that are not installed ({error.name}); install sgl[otel]"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "sgl"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return RequestTraces(provider, model_name=model_name)
