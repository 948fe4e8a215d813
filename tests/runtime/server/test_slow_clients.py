"""Clients that send or take too slowly, or only hold connections."""

import contextlib
import json
import logging
import socket
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
import requests

from fakes.scripted_server import ScriptedServer
from fakes.waiting import wait_for
from sgl_runtime.server import http_log
from sgl_runtime.server.timed_protocol import MAX_HELD_BYTES, MAX_WAITING

HEAD = b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(read_timeout=0.3, keep_alive_timeout=0.6, write_timeout=0.5, max_connections=60) as server:
        yield server


def connect(server: ScriptedServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def read_all(client: socket.socket) -> bytes:
    """What comes until the server closes the connection, or resets it."""
    parts: list[bytes] = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1])


def error_code(reply: bytes) -> str:
    code: str = json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["code"]
    return code


@pytest.mark.parametrize("sent", [b"POST /gene", HEAD, HEAD + b"\r\n" + b'{"text"'])
def test_a_request_that_does_not_come_on_is_cut_off(server: ScriptedServer, sent: bytes) -> None:
    with connect(server) as client:
        client.sendall(sent)
        reply = read_all(client)
    assert status_of(reply) == 408
    assert error_code(reply) == "request_timeout"


def test_a_byte_now_and_then_is_no_reprieve(server: ScriptedServer) -> None:
    with connect(server) as client:
        begin = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - begin < 5.0:
                client.sendall(b"x: y\r\n" if time.monotonic() != begin else HEAD)
                client.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    if client.recv(1000) is not None:
                        break
        assert time.monotonic() - begin < 2.0


def test_connections_that_say_nothing_are_closed(server: ScriptedServer) -> None:
    with connect(server) as client:
        assert read_all(client) == b""
    with connect(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        begin = time.monotonic()
        assert status_of(read_all(client)) == 200
        assert 0.4 < time.monotonic() - begin < 3.0


def test_a_request_may_take_longer_than_its_sending(server: ScriptedServer) -> None:
    body = b'{"text": "HANG", "rid": "long"}'
    with connect(server) as client:
        client.sendall(HEAD.replace(b"1000", b"%d" % len(body)) + b"\r\n" + body)
        client.settimeout(1.0)
        with pytest.raises(TimeoutError):
            client.recv(1)
    wait_until_idle(server)


def test_heads_without_end_are_refused(server: ScriptedServer) -> None:
    with connect(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                client.sendall(b"x-a: " + b"b" * 1000 + b"\r\n")
            client.shutdown(socket.SHUT_WR)
        # The rest of what was sent may have reset the connection before the reply was read.
        reply = read_all(client)
        assert not reply or status_of(reply) == 431
    assert requests.get(server.url + "/health", timeout=20).ok


def test_a_client_that_takes_no_data_is_let_go(server: ScriptedServer) -> None:
    server.scheduler.hold_after = None
    body = json.dumps({"text": "FOREVER", "stream": True, "sampling_params": {"max_new_tokens": 190}}).encode()
    request = HEAD.replace(b"1000", b"%d" % len(body)) + b"\r\n" + body
    with connect(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # Many replies, none of which is read.
        with contextlib.suppress(ConnectionError, TimeoutError):
            client.settimeout(0.5)
            for _ in range(400):
                client.sendall(request)
        wait_until_idle(server)
        deadline = time.monotonic() + 20
        while server.server.server_state.connections:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_past_the_limit_connections_are_refused_and_room_comes_back(server: ScriptedServer) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(60):
            held.enter_context(connect(server))
        with connect(server) as one_more:
            reply = read_all(one_more)
        assert status_of(reply) == 503
        assert b"\r\nretry-after: 1\r\n" in reply
        assert error_code(reply) == "overloaded"
    deadline = time.monotonic() + 10
    while True:
        with contextlib.suppress(requests.ConnectionError):
            if requests.get(server.url + "/health", timeout=20).ok:
                break
        assert time.monotonic() < deadline


def test_idle_connections_are_held() -> None:
    with ScriptedServer() as server, requests.Session() as session, contextlib.ExitStack() as held:
        for _ in range(200):
            client = held.enter_context(connect(server))
            client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        assert session.post(server.url + "/generate", json={"text": "say:a"}, timeout=20).json()["text"] == "a"
        assert len(server.server.server_state.connections) >= 201


def wait_until_idle(server: ScriptedServer) -> None:
    deadline = time.monotonic() + 20
    # The scheduler hears of it later.
    while server.manager.num_live or server.scheduler.running:
        assert time.monotonic() < deadline, "requests are left"
        time.sleep(0.01)


def test_a_client_that_leaves_with_several_requests_ends_them_all(caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedServer() as server:
        bodies = [b'{"text": "HANG", "rid": "first"}', b'{"text": "HANG", "rid": "second"}']
        with connect(server) as client:
            for body in bodies:
                client.sendall(HEAD.replace(b"1000", b"%d" % len(body)) + b"\r\n" + body)
            deadline = time.monotonic() + 10
            while "first" not in server.scheduler.running:
                assert time.monotonic() < deadline
                time.sleep(0.005)
        wait_until_idle(server)
    assert caplog.text == ""


def test_nonsense_behind_a_request_is_not_taken_for_its_reply(caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedServer() as server:
        body = b'{"text": "HANG", "rid": "first"}'
        with connect(server) as client:
            client.sendall(HEAD.replace(b"1000", b"%d" % len(body)) + b"\r\n" + body + b"\x00\x01 nonsense\r\n\r\n")
            assert read_all(client) == b""
        wait_until_idle(server)
    assert "ERROR" not in caplog.text


@pytest.mark.parametrize(
    "offer",
    [
        b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk",
        b"connection: upgrade\r\nupgrade: websocket",
    ],
)
def test_a_body_is_read_whatever_protocol_its_client_would_rather_speak(server: ScriptedServer, offer: bytes) -> None:
    for size in (10, 300_000):
        body = json.dumps({"text": "a" * size}).encode()
        with connect(server) as client:
            client.sendall(b"POST /tokenize HTTP/1.1\r\nhost: x\r\n" + offer + b"\r\n")
            client.sendall(b"content-length: %d\r\n\r\n" % len(body) + body)
            assert status_of(client.recv(100)) == 200


def test_a_short_body_is_waited_for_and_a_long_one_is_not(server: ScriptedServer) -> None:
    """A request is looked at once: when a short body is there, or before a long one is sent in vain."""
    head = b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    with connect(server) as client:
        client.sendall(head % MAX_HELD_BYTES)
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(10)
        client.sendall(b" " * MAX_HELD_BYTES)
        assert status_of(client.recv(65536)) == 404
    with connect(server) as client:
        client.sendall(head % (MAX_HELD_BYTES + 1))
        assert status_of(client.recv(65536)) == 404


def test_more_requests_than_are_read_ahead_are_all_answered(server: ScriptedServer) -> None:
    body = b'{"text": "say:a"}'
    request = HEAD.replace(b"1000", b"%d" % len(body)) + b"\r\n" + body
    with connect(server) as client:
        for _ in range(3 * MAX_WAITING):
            client.sendall(request)
        received = b""
        while received.count(b"HTTP/1.1 200") < 3 * MAX_WAITING:
            part = client.recv(65536)
            assert part, received
            received += part


def test_every_reply_says_when_it_was_made(server: ScriptedServer) -> None:
    begin = int(time.time())
    for path in ("/ready", "/nowhere"):
        made = parsedate_to_datetime(requests.get(server.url + path, timeout=20).headers["date"])
        assert begin <= made.timestamp() <= time.time()


def test_the_headers_of_a_proxy_on_this_machine_are_believed(server: ScriptedServer, caplog: Any) -> None:
    caplog.set_level(logging.INFO, http_log.logger.name)
    requests.get(server.url + "/nowhere", headers={"X-Forwarded-For": "192.0.2.7"}, timeout=20)
    wait_for(lambda: len(caplog.records) == 1)  # The line is written when the reply has been sent.
    requests.get(server.url + "/nowhere", timeout=20)
    wait_for(lambda: len(caplog.records) == 2)
    clients = [record.getMessage().partition("client=")[2].split(":")[0] for record in caplog.records]
    assert clients == ["192.0.2.7", "127.0.0.1"]
