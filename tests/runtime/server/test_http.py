import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from fakes.scripted_server import ScriptedServer
from fakes.waiting import wait_for
from sgl_runtime.ipc.messages import AbortRequest, FinishReason, TextDelta


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def error_of(response: requests.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'"text"',
        b"\xff\xfe",
        b'{"text": NaN}',
        b'{"text": "\\ud800"}',
        b"[" * 100_000,
        b'{"text": "a", "sampling_params": {"json_schema": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}}",
        b"",
    ],
)
def test_bad_body_is_a_400_in_the_envelope(server: ScriptedServer, body: bytes) -> None:
    response = requests.post(server.url + "/generate", data=body, timeout=20)
    if b"json_schema" not in body:
        assert response.status_code == 400
        assert error_of(response)["code"] == "invalid_request"
    assert requests.get(server.url + "/health", timeout=20).json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"[" + b"[]," * 300_000 + b"0]", "lists and objects"),
        (b'{"text": [' + b"1," * 2_100_000 + b"1]}", "values"),
    ],
)
def test_a_body_of_very_many_values_is_refused(server: ScriptedServer, body: bytes, what: str) -> None:
    response = requests.post(f"{server.url}/generate", data=body, timeout=30)
    assert response.status_code == 413
    assert what in response.json()["error"]["message"]


def test_a_long_text_is_taken_whatever_it_holds(server: ScriptedServer) -> None:
    text = "a, [b], {c} " * 80_000
    response = requests.post(f"{server.url}/generate", json={"text": text}, timeout=30)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_unknown_path_and_wrong_method(server: ScriptedServer) -> None:
    missing = requests.post(server.url + "/generat", json={}, timeout=20)
    assert (missing.status_code, error_of(missing)["code"]) == (404, "not_found")
    wrong = requests.get(server.url + "/generate", timeout=20)
    assert (wrong.status_code, error_of(wrong)["code"], wrong.headers["allow"]) == (405, "method_not_allowed", "POST")


def test_flush_cache_takes_get(server: ScriptedServer) -> None:
    assert requests.get(server.url + "/flush_cache", timeout=20).json()["success"] is True


def test_refused_stream_has_a_status(server: ScriptedServer) -> None:
    payload = {"text": "a", "stream": True, "sampling_params": {"regex": "("}}
    response = requests.post(server.url + "/generate", json=payload, timeout=20)
    assert (response.status_code, error_of(response)["code"]) == (400, "bad_grammar")


def test_client_that_hangs_up_inside_its_body_is_no_error(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
        client.sendall(head + b'{"text": ')
    assert requests.get(server.url + "/health", timeout=20).status_code == 200
    wait_for(lambda: not server.server.server_state.tasks)
    assert caplog.text == ""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["HANG", "FOREVER"])
def test_client_that_hangs_up_ends_its_request(stream: bool, prompt: str) -> None:
    with ScriptedServer() as server:
        body = f'{{"text": "{prompt}", "rid": "gone", "stream": {str(stream).lower()}}}'.encode()
        if prompt == "FOREVER":
            server.scheduler.hold_after = 3
        head = f"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
            client.sendall(head + body)
            wait_for(lambda: bool(server.scheduler.running))
        begin = time.monotonic()
        wait_for(lambda: not server.scheduler.running)
        assert time.monotonic() - begin < 1.0
        assert isinstance(server.scheduler.accepted[-1], AbortRequest)
        wait_for(lambda: server.manager.num_live == 0)
        # The rid is free again.
        reply = requests.post(server.url + "/generate", json={"text": "say:a", "rid": "gone"}, timeout=20)
        assert reply.json()["text"] == "a"


def test_failure_inside_a_stream_is_an_event() -> None:
    with ScriptedServer() as server:
        server.scheduler.hold_after = 2
        payload = {"text": "FOREVER", "stream": True, "rid": "r"}
        with requests.post(server.url + "/generate", json=payload, stream=True, timeout=20) as response:
            lines = (line for line in response.iter_lines(decode_unicode=True) if line)
            assert next(lines).startswith('data: {"text":"x')
            finish = FinishReason(type="abort", message="slots ran out", code="overloaded")
            delta = TextDelta(rid="r", text="", new_ids=[], finish=finish)
            server.loop.call_soon_threadsafe(server.manager.deliver, [delta])
            rest = list(lines)
        assert rest[-1] == "data: [DONE]"
        assert '"code":"overloaded"' in rest[-2]
        requests.post(server.url + "/abort_request", json={"abort_all": True}, timeout=20)


def test_limit_on_live_requests_is_a_503() -> None:
    with ScriptedServer(max_running_requests=1, max_queued_requests=1) as server:
        response = requests.post(server.url + "/generate", json={"text": ["a", "b", "c"]}, timeout=20)
        assert (response.status_code, error_of(response)["code"]) == (503, "overloaded")
        assert len(requests.post(server.url + "/generate", json={"text": ["a", "b"]}, timeout=20).json()) == 2


def test_shutdown_gives_running_requests_an_answer() -> None:
    replies: list[requests.Response] = []
    with ScriptedServer() as server:
        runner = threading.Thread(
            target=lambda: replies.append(requests.post(server.url + "/generate", json={"text": "HANG"}, timeout=20))
        )
        runner.start()
        wait_for(lambda: bool(server.scheduler.running))
    runner.join(10)
    assert (replies[0].status_code, error_of(replies[0])["code"]) == (503, "overloaded")
    assert "shutting down" in error_of(replies[0])["message"]


def test_health_fails_without_a_sign_of_life(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgl_runtime.server.tokenizer_manager.MAX_HEARTBEAT_AGE_S", -1.0)
    response = requests.get(server.url + "/health", timeout=20)
    assert response.status_code == 503
    assert "no sign of life" in error_of(response)["message"]
