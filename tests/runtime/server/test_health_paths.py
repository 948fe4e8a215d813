"""Signs of life, readiness, and the probe through all processes."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from fakes.scripted_server import ScriptedServer
from fakes.waiting import wait_for
from sgl_runtime.ipc.messages import TokenizedRequest


def get(server: ScriptedServer, path: str) -> requests.Response:
    return requests.get(server.url + path, timeout=20)


def test_a_probe_is_not_held_to_the_limits_of_users() -> None:
    with ScriptedServer(max_running_requests=1, max_queued_requests=1) as server:
        with ThreadPoolExecutor(2) as pool:
            for rid in ("a", "b"):
                pool.submit(requests.post, server.url + "/generate", json={"text": "HANG", "rid": rid}, timeout=20)
            wait_for(lambda: server.manager.num_live == 2)
            probe = get(server, "/health_generate")
            assert probe.status_code == 200
            assert probe.json()["seconds"] < 10
            # Nor does it take the place of one.
            assert requests.post(server.url + "/generate", json={"text": "a"}, timeout=20).status_code == 503
            requests.post(server.url + "/abort_request", json={"abort_all": True}, timeout=20)
        assert requests.post(server.url + "/generate", json={"text": ["a", "b"]}, timeout=20).ok


def test_those_who_ask_at_once_share_one_probe() -> None:
    with ScriptedServer() as server:
        leave = threading.Event()
        accept = server.scheduler.accept

        def held(message: object) -> object:
            if isinstance(message, TokenizedRequest):
                assert leave.wait(20)
            return accept(message)  # type: ignore[arg-type]

        server.scheduler.accept = held  # type: ignore[assignment, method-assign]
        with ThreadPoolExecutor(8) as pool:
            probes = [pool.submit(get, server, "/health_generate") for _ in range(8)]
            wait_for(lambda: len(server.server.server_state.tasks) == 8)
            leave.set()
            assert {probe.result().status_code for probe in probes} == {200}
        sent = [message for message in server.scheduler.accepted if isinstance(message, TokenizedRequest)]
        assert len(sent) == 1


def test_without_a_token_the_probe_fails_in_time_and_the_heartbeat_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgl_runtime.server.health_paths.PROBE_LIMIT_S", 0.2)
    with ScriptedServer() as server:
        server.scheduler.step = list  # type: ignore[method-assign]
        probe = get(server, "/health_generate")
        assert (probe.status_code, probe.json()["error"]["code"]) == (503, "overloaded")
        assert "no token came within" in probe.json()["error"]["message"]
        # It is taken back.
        wait_for(lambda: not server.scheduler.running)
        assert get(server, "/health").status_code == get(server, "/ping").status_code == 200


def test_a_server_that_ends_lives_and_is_not_ready() -> None:
    with ScriptedServer() as server:
        server.grace_s = 20.0
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                requests.post, server.url + "/generate", json={"text": "HANG", "rid": "r"}, timeout=20
            )
            wait_for(lambda: bool(server.scheduler.running))
            assert get(server, "/ready").json() == {"status": "ready"}
            server.server.stop()
            wait_for(lambda: get(server, "/ready").status_code == 503)
            assert "shutting down" in get(server, "/ready").json()["error"]["message"]
            assert get(server, "/health").status_code == 200
            refused = requests.post(server.url + "/generate", json={"text": "a"}, timeout=20)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            # What runs goes on to its end.
            server.scheduler.running["r"].prompt = ""
            assert running.result().status_code == 200


def test_health_answers_while_many_requests_run() -> None:
    with ScriptedServer() as server, ThreadPoolExecutor(16) as pool:
        server.scheduler.hold_after = None
        body = {"text": "FOREVER", "sampling_params": {"max_new_tokens": 190}}
        replies = [pool.submit(requests.post, server.url + "/generate", json=body, timeout=60) for _ in range(32)]
        times = []
        with requests.Session() as session:
            for _ in range(10):
                begin = time.monotonic()
                assert session.get(server.url + "/health", timeout=20).ok
                times.append(time.monotonic() - begin)
        assert all(reply.result().ok for reply in replies)
    assert sorted(times)[len(times) // 2] < 0.5
