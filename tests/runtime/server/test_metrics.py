"""/metrics: names, counts, and latencies that agree with what clients measure."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import requests
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from fakes.scripted_server import ScriptedServer
from fakes.waiting import wait_for
from sgl_runtime.ipc.messages import StatsRequest
from sgl_runtime.server.metrics import ServerMetrics

NAMES_OF_SGLANG = {
    "num_running_reqs",
    "num_queue_reqs",
    "num_grammar_queue_reqs",
    "token_usage",
    "num_used_tokens",
    "gen_throughput",
    "cache_hit_rate",
    "cached_tokens",
    "prompt_tokens",
    "generation_tokens",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "queue_time_seconds",
    "num_requests",
    "num_aborted_requests",
    "num_retracted_reqs",
}


def scrape(server: ScriptedServer) -> dict[str, float]:
    """Values by name and labels but for the model's."""
    reply = requests.get(server.url + "/metrics", timeout=20)
    assert reply.headers["content-type"].startswith("text/plain")
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(reply.text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model_name") == "scripted"
            values[sample.name.removeprefix("sgl:") + "".join(f"/{value}" for value in labels.values())] = sample.value
    return values


def test_names_are_those_that_users_know() -> None:
    metrics = ServerMetrics(CollectorRegistry(), model_name="m")
    fields = ("num_running", "num_waiting", "num_grammar_queue", "token_usage", "total_slots", "num_retracted_total")
    metrics.set_scheduler_counters(dict.fromkeys(fields, 1))
    families = {family.name for family in metrics.registry.collect()}
    assert all(name.startswith("sgl:") for name in families)
    assert {f"sgl:{name}" for name in NAMES_OF_SGLANG} <= families


def test_two_servers_in_a_process_count_apart() -> None:
    first, second = (ServerMetrics(CollectorRegistry(), model_name="m") for _ in range(2))
    first.count_next(3, 0.3)
    assert first.registry.get_sample_value("sgl:generation_tokens_total", {"model_name": "m"}) == 3
    assert second.registry.get_sample_value("sgl:generation_tokens_total", {"model_name": "m"}) == 0


def test_requests_and_tokens_are_counted_once() -> None:
    with ScriptedServer() as server:
        for _ in range(3):
            requests.post(server.url + "/generate", json={"text": "say:abc"}, timeout=20).raise_for_status()
        cut = {"text": "say:abcdef", "sampling_params": {"max_new_tokens": 2, "n": 2}}
        requests.post(server.url + "/generate", json=cut, timeout=20).raise_for_status()
        bad = requests.post(server.url + "/generate", json={"text": "a", "sampling_params": {"regex": "("}}, timeout=20)
        assert bad.status_code == 400
        # What the server asks itself counts nowhere.
        assert requests.get(server.url + "/health_generate", timeout=20).ok
        values = scrape(server)
    assert values["num_requests_total/stop"] == 3
    assert values["num_requests_total/length"] == 2
    assert values["num_requests_total/bad_grammar"] == values["num_aborted_requests_total"] == 1
    assert values["num_requests_received_total"] == 6
    assert values["generation_tokens_total"] == 3 * 4 + 2 * 2
    assert values["prompt_tokens_total"] == 3 * 8 + 2 * 11
    assert values["cached_tokens_total"] == 3 * 5
    assert values["time_to_first_token_seconds_count"] == values["queue_time_seconds_count"] == 5
    assert values["inter_token_latency_seconds_count"] == 3 * 3 + 2 * 1
    assert values["e2e_request_latency_seconds_count"] == 5
    assert values["num_running_reqs"] == 0
    assert values["scheduler_answered"] == 1


def test_a_request_whose_client_left_is_counted_as_aborted() -> None:
    with ScriptedServer() as server:
        with pytest.raises(requests.ReadTimeout):
            requests.post(server.url + "/generate", json={"text": "HANG"}, timeout=0.3)
        deadline = time.monotonic() + 10
        while "num_requests_total/left" not in (values := scrape(server)):
            assert time.monotonic() < deadline
        assert values["num_aborted_requests_total"] == 1
        assert values["num_requests_total/left"] == 1


def test_latencies_are_those_that_a_client_measures() -> None:
    pause_s = 0.2
    with ScriptedServer() as server, ThreadPoolExecutor(1) as others:
        server.scheduler.hold_after = 0

        def go_on_later(until: int | None) -> None:
            wait_for(lambda: server.scheduler.running)
            threading.Event().wait(pause_s)
            server.scheduler.hold_after = until

        payload = {"text": "FOREVER", "stream": True, "sampling_params": {"max_new_tokens": 8}}
        others.submit(go_on_later, 3)
        begin = time.monotonic()
        first_s = None
        with httpx.stream("POST", server.url + "/generate", json=payload, timeout=20) as stream:
            for line in stream.iter_lines():
                if first_s is None and line.startswith("data: {"):
                    first_s = time.monotonic() - begin
                    others.submit(go_on_later, None)
        whole_s = time.monotonic() - begin
        values = scrape(server)
    assert values["time_to_first_token_seconds_count"] == values["e2e_request_latency_seconds_count"] == 1
    assert values["inter_token_latency_seconds_count"] == 7
    # What lies between is longer than the pauses that were made in it, and shorter than what the client saw around it.
    assert first_s is not None
    assert pause_s <= values["time_to_first_token_seconds_sum"] <= first_s
    assert pause_s <= values["inter_token_latency_seconds_sum"] <= whole_s - pause_s
    assert 2 * pause_s <= values["e2e_request_latency_seconds_sum"] <= whole_s


def test_metrics_come_without_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgl_runtime.server.metrics_routes.SCHEDULER_WAIT_S", 0.1)
    with ScriptedServer() as server:
        requests.post(server.url + "/generate", json={"text": "say:abc"}, timeout=20).raise_for_status()
        entered, leave = threading.Event(), threading.Event()
        accept = server.scheduler.accept

        def busy(message: object) -> object:
            if isinstance(message, StatsRequest):
                entered.set()
                assert leave.wait(20)
            return accept(message)  # type: ignore[arg-type]

        server.scheduler.accept = busy  # type: ignore[assignment, method-assign]
        begin = time.monotonic()
        values = scrape(server)
        assert time.monotonic() - begin < 2.0
        assert entered.is_set()
        leave.set()
    assert values["scheduler_answered"] == 0
    assert "num_running_reqs" not in values
    assert values["num_requests_total/stop"] == 1


def test_the_dashboard_shows_metrics_that_are_there() -> None:
    root = Path(__file__).resolve().parents[3]
    dashboard = (root / "deploy" / "grafana.json").read_text(encoding="utf-8")
    used = set(re.findall(r"sgl:\w+", dashboard))
    assert len(used) >= 15
    metrics = ServerMetrics(CollectorRegistry(), model_name="m")
    metrics.set_scheduler_counters(dict.fromkeys(FIELDS, 1))
    there: set[str] = set()
    for family in metrics.registry.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        there |= {family.name + suffix for suffix in suffixes}
    assert used <= there


FIELDS = (
    "num_running",
    "num_waiting",
    "num_grammar_queue",
    "token_usage",
    "total_slots",
    "cached_slots",
    "host_cached_slots",
    "num_retracted_total",
    "num_sessions",
    "failed_idle_checks_total",
)
