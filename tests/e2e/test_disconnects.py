"""A client that hangs up: within a second its requests are out of every queue, and their slots are back."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from fakes.hashed_composition import PASS_S
from fakes.hostile_connections import request_bytes
from fakes.scripted_server import ScriptedServer
from fakes.server_process import ServerProcess
from fakes.server_watch import ServerWatch
from sgl_runtime.model_info import PoolingInfo

LIMIT_S = 1.0
# It takes 190 passes; a prompt of these takes 24.
LONG: dict[str, Any] = {"max_new_tokens": 100_000, "ignore_eos": True}
LONG_PROMPT = "x" * 188
MESSAGES = [{"role": "user", "content": "a"}]
# Its automaton has very many states, and takes seconds.
SLOW_REGEX = "(" + "|".join(f"[ab]*a[ab]{{{number}}}" for number in range(9, 16)) + ")"


@pytest.fixture(scope="module")
def watch() -> Iterator[ServerWatch]:
    flags = ["--chunked-prefill-size", "8", "--max-running-requests", "4", "--max-total-tokens", "1000"]
    server = ServerProcess(*flags, model_path="paced", main="fakes.hashed_serve")
    try:
        server.wait_for_line("serving url=")
        yield ServerWatch(server)
    finally:
        server.close()


def begin(port: int, path: str, body: dict[str, Any]) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    client.sendall(request_bytes(path, body))
    return client


def wait_for(watch: ServerWatch, **numbers: int) -> dict[str, Any]:
    """The counters, once they have these values."""
    deadline = time.monotonic() + 20
    while any((state := watch.state())[name] != number for name, number in numbers.items()):
        assert time.monotonic() < deadline, state
        threading.Event().wait(0.01)
    return state


def assert_gone(watch: ServerWatch, left_at: float) -> dict[str, Any]:
    state = wait_for(watch, num_running=0, num_waiting=0, num_grammar_queue=0)
    assert time.monotonic() - left_at < LIMIT_S
    watch.assert_whole()
    return state


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "num_running"),
    [
        ("/generate", {"text": "a", "sampling_params": LONG}, 1),
        ("/generate", {"text": "a", "sampling_params": {**LONG, "n": 3}}, 3),
        ("/generate", {"text": ["a", "b"], "sampling_params": LONG}, 2),
        ("/v1/completions", {"prompt": "a", "max_tokens": 180, "ignore_eos": True, "n": 2}, 2),
        ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 170, "ignore_eos": True, "n": 2}, 2),
        ("/v1/responses", {"input": "a", "max_output_tokens": 170, "ignore_eos": True}, 1),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 170, "ignore_eos": True}, 1),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_decodes_is_gone(
    watch: ServerWatch, path: str, body: dict[str, Any], num_running: int, stream: bool
) -> None:
    client = begin(watch.server.port, path, {**body, "stream": stream})
    before = wait_for(watch, num_running=num_running)
    client.close()
    after = assert_gone(watch, time.monotonic())
    most = num_running * (LIMIT_S / PASS_S + 2)
    assert after["generation_tokens_total"] - before["generation_tokens_total"] < most


def test_a_prompt_that_is_computed_in_pieces_is_gone(watch: ServerWatch) -> None:
    before = watch.state()["generation_tokens_total"]
    client = begin(watch.server.port, "/generate", {"text": LONG_PROMPT, "sampling_params": LONG})
    wait_for(watch, num_running=1)
    client.close()
    after = assert_gone(watch, time.monotonic())
    assert after["generation_tokens_total"] == before


def test_a_shared_prompt_that_is_computed_in_pieces_is_gone_with_all_its_outputs(watch: ServerWatch) -> None:
    params = {**LONG, "n": 4}
    client = begin(watch.server.port, "/generate", {"text": "y" * 188, "sampling_params": params, "stream": True})
    deadline = time.monotonic() + 20
    while not watch.state()["num_running"]:
        assert time.monotonic() < deadline
    client.close()
    assert_gone(watch, time.monotonic())


def test_what_waits_in_the_queue_is_gone_and_what_runs_is_not(watch: ServerWatch) -> None:
    running = [
        begin(watch.server.port, "/generate", {"text": f"{number}", "sampling_params": LONG}) for number in range(4)
    ]
    wait_for(watch, num_running=4)
    waiting = begin(watch.server.port, "/generate", {"text": ["v", "w"], "sampling_params": LONG})
    wait_for(watch, num_running=4, num_waiting=2)
    waiting.close()
    left_at = time.monotonic()
    wait_for(watch, num_running=4, num_waiting=0)
    assert time.monotonic() - left_at < LIMIT_S
    for client in running:
        client.close()
    assert_gone(watch, time.monotonic())


def test_what_waits_for_its_grammar_is_gone(watch: ServerWatch) -> None:
    client = begin(watch.server.port, "/generate", {"text": "a", "sampling_params": {**LONG, "regex": SLOW_REGEX}})
    wait_for(watch, num_grammar_queue=1)
    client.close()
    assert_gone(watch, time.monotonic())


def test_what_waits_while_the_server_is_paused_is_gone(watch: ServerWatch) -> None:
    requests.post(watch.server.url + "/pause_generation", json={"mode": "in_place"}, timeout=20)
    client = begin(watch.server.port, "/generate", {"text": "a", "sampling_params": LONG})
    wait_for(watch, num_waiting=1)
    client.close()
    left_at = time.monotonic()
    wait_for(watch, num_waiting=0)
    assert time.monotonic() - left_at < LIMIT_S
    watch.assert_whole()


def test_a_request_for_vectors_is_gone() -> None:
    pooling = PoolingInfo(
        method="mean", size=4, normalizes=True, labels=None, activation="none", reads_pairs=False, max_length=None
    )
    with ScriptedServer(pooling=pooling) as server:
        client = begin(server.port, "/v1/embeddings", {"input": ["HANG", "HANG too"]})
        deadline = time.monotonic() + 10
        while len(server.scheduler.running) < 2:
            assert time.monotonic() < deadline
            threading.Event().wait(0.005)
        client.close()
        left_at = time.monotonic()
        while server.scheduler.running or server.manager.num_live:
            assert time.monotonic() - left_at < LIMIT_S
            threading.Event().wait(0.005)
