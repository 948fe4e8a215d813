"""Spans of requests, looked at in memory."""

import builtins
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fakes.scripted_server import ScriptedServer
from sgl_runtime.errors import ConfigError
from sgl_runtime.server.request_traces import RequestTraces, open_traces

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def server(exporter: InMemorySpanExporter) -> Iterator[ScriptedServer]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with ScriptedServer(traces=RequestTraces(provider, model_name="scripted")) as server:
        yield server


def the_span(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_request_becomes_a_span(server: ScriptedServer, exporter: InMemorySpanExporter) -> None:
    body = {"text": "say:abc", "rid": "r", "sampling_params": {"temperature": 0.5, "stop": ["x"], "sampling_seed": 3}}
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "x-request-id": "call"}
    requests.post(server.url + "/generate", json=body, headers=headers, timeout=20).raise_for_status()
    span = the_span(exporter)
    assert span.name == "text_completion scripted"
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == TRACE_ID
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT_ID
    found = attributes(span)
    assert found["gen_ai.response.id"] == "r"
    assert found["gen_ai.request.temperature"] == 0.5
    assert found["gen_ai.request.stop_sequences"] == ("x",)
    assert found["gen_ai.request.seed"] == 3
    assert found["gen_ai.response.finish_reasons"] == ("stop",)
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (8, 4)
    assert found["http.request.id"] == "call"
    assert [event.name for event in span.events] == ["queued", "scheduled", "first_token"]
    moments = [span.start_time, *(event.timestamp for event in span.events), span.end_time]
    assert all(moment is not None for moment in moments)
    assert moments == sorted(moments, key=lambda moment: moment or 0)
    assert not span.status.description


def test_chat_is_called_so_and_a_failure_is_an_error(server: ScriptedServer, exporter: InMemorySpanExporter) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "say:a"}]}
    requests.post(server.url + "/v1/chat/completions", json=chat, timeout=20).raise_for_status()
    assert the_span(exporter).name == "chat scripted"
    exporter.clear()
    body = {"text": "a", "sampling_params": {"regex": "("}}
    assert requests.post(server.url + "/generate", json=body, timeout=20).status_code == 400
    span = the_span(exporter)
    assert span.status.description == "bad_grammar"
    assert attributes(span)["error.type"] == "bad_grammar"
    assert span.parent is None


def test_without_the_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("opentelemetry.exporter"):
            raise ModuleNotFoundError("no", name="opentelemetry")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"install sgl\[otel\]"):
        open_traces("http://localhost:4318/v1/traces", model_name="m")


def test_spans_go_to_the_collector_that_is_named() -> None:
    traces = open_traces("http://127.0.0.1:9/v1/traces", model_name="m")
    traces.close()
