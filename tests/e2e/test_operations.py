"""What operators use, on the real model: profiles, many idle connections, the health of a busy server."""

import contextlib
import gzip
import json
import resource
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from fakes.server_process import REAL, ServerProcess

pytestmark = [pytest.mark.model, pytest.mark.slow]

NUM_IDLE = 2000
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    server = ServerProcess("--max-total-tokens", "4096", model_path="smollm2", main=REAL)
    try:
        server.wait_for_line("serving url=")
        yield server
    finally:
        server.close()


def generate(server: ServerProcess, num_tokens: int) -> requests.Response:
    sampling = {"max_new_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    return requests.post(server.url + "/generate", json={"text": "Once", "sampling_params": sampling}, timeout=120)


def is_well(client: socket.socket) -> bool:
    reply = b""
    while not reply.endswith(b"}"):
        reply += client.recv(4096)
    return reply.startswith(b"HTTP/1.1 200") and b'{"status":"ok"}' in reply


def trace_of(folder: Path) -> list[dict[str, object]]:
    (file,) = folder.iterdir()
    assert file.name.endswith("-rank0.trace.json.gz")
    events: list[dict[str, object]] = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return events


def test_profiles_are_written_and_the_server_goes_on(server: ServerProcess, tmp_path: Path) -> None:
    start = {"output_dir": str(tmp_path / "counted"), "num_steps": 4}
    assert requests.post(server.url + "/start_profile", json=start, timeout=60).json()["success"]
    second = requests.post(server.url + "/start_profile", json=start, timeout=60)
    assert second.status_code == 400
    plain = generate(server, 10).json()["text"]
    assert any(event.get("cat") == "cpu_op" for event in trace_of(tmp_path / "counted"))
    assert requests.post(server.url + "/stop_profile", json={}, timeout=60).status_code == 400
    start = {"output_dir": str(tmp_path / "stopped")}
    assert requests.post(server.url + "/start_profile", json=start, timeout=60).json()["success"]
    assert generate(server, 10).json()["text"] == plain
    assert requests.post(server.url + "/stop_profile", json={}, timeout=60).json()["success"]
    assert trace_of(tmp_path / "stopped")
    assert generate(server, 10).json()["text"] == plain


def test_two_thousand_idle_connections_are_held(server: ServerProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < NUM_IDLE + 100:
        pytest.skip(f"the system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, NUM_IDLE + 500), hard))
    try:
        with contextlib.ExitStack() as held:
            clients = [
                held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
                for _ in range(NUM_IDLE)
            ]
            for client in clients:
                client.sendall(HEALTH)
            for client in clients:
                assert is_well(client)
            assert generate(server, 3).status_code == 200
            # All of them still serve.
            for client in clients:
                client.sendall(HEALTH)
                assert is_well(client)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_health_and_metrics_of_a_busy_server(server: ServerProcess) -> None:
    threads = [threading.Thread(target=generate, args=(server, 100)) for _ in range(24)]
    for thread in threads:
        thread.start()
    times: dict[str, list[float]] = {"/health": [], "/metrics": []}
    with requests.Session() as session:
        for _ in range(30):
            for path, taken in times.items():
                begin = time.monotonic()
                assert session.get(server.url + path, timeout=20).ok
                taken.append(time.monotonic() - begin)
    for thread in threads:
        thread.join()
    # The limit is 100 ms on a machine of its own.
    assert statistics.median(times["/health"]) < 0.5, times
    assert max(times["/metrics"]) < 5.0, times
    print({path: (statistics.median(taken), max(taken)) for path, taken in times.items()})
