"""How the processes of a server end: by signals, by hangs, by death; and what they leave behind."""

import contextlib
import json
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import requests

from fakes.server_process import ServerProcess

MOST_S = 5.0
"""In which all processes end when one of them has died."""


@contextlib.contextmanager
def serving(*flags: str, **more: str) -> Iterator[ServerProcess]:
    server = ServerProcess(*flags, **more)
    try:
        server.wait_for_line("serving url=")
        yield server
    finally:
        server.close()


def post(server: ServerProcess, text: str, replies: list[object]) -> threading.Thread:
    def send() -> None:
        try:
            replies.append(requests.post(server.url + "/generate", json={"text": text}, timeout=30))
        except requests.RequestException as error:
            replies.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def wait_for_running(server: ServerProcess, count: int) -> None:
    with requests.Session() as session:
        while session.get(server.url + "/get_load", timeout=20).json()["num_running_reqs"] < count:
            time.sleep(0.005)


def all_processes(server: ServerProcess) -> list[psutil.Process]:
    parent = psutil.Process(server.process.pid)
    return [parent, *parent.children(recursive=True)]


def socket_folder(server: ServerProcess) -> Path:
    paths = {str(found.laddr) for found in psutil.Process(server.process.pid).net_connections("unix")}
    (folder,) = {Path(path).parent for path in paths if "/sgl-" in path}
    assert folder.is_dir()
    return folder


def assert_all_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=MOST_S)
    assert not alive, alive


def test_sigterm_lets_requests_run_and_a_second_one_does_not() -> None:
    replies: list[object] = []
    with serving() as server:
        thread = post(server, "HANG", replies)
        wait_for_running(server, 1)
        processes = all_processes(server)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_line("ending the server signal=SIGTERM")
        with requests.Session() as session:
            while session.get(server.url + "/ready", timeout=20).status_code != 503:
                time.sleep(0.005)
            refused = session.post(server.url + "/generate", json={"text": "a"}, timeout=20)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert session.get(server.url + "/health", timeout=20).status_code == 200
        assert not replies
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_ended() == 0
        assert time.monotonic() - begin < MOST_S
        thread.join(20)
        assert isinstance(replies[0], requests.Response)
        assert replies[0].status_code == 503
        assert_all_gone(processes)
        assert "Traceback" not in server.log


@pytest.mark.slow
def test_a_drain_has_an_end() -> None:
    replies: list[object] = []
    with serving("--shutdown-timeout", "0.3") as server:
        thread = post(server, "HANG", replies)
        wait_for_running(server, 1)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_ended() == 0
        thread.join(20)
        assert isinstance(replies[0], requests.Response)
        assert replies[0].status_code == 503
        assert "requests ended by shutdown count=1" in server.log


@pytest.mark.parametrize("prompt", ["STUCK", pytest.param("CLUTCH", marks=pytest.mark.slow)])
def test_a_hung_pass_ends_the_server_with_the_stacks(prompt: str) -> None:
    replies: list[object] = []
    with serving("--watchdog-timeout", "0.5") as server:
        processes = all_processes(server)
        begin = time.monotonic()
        thread = post(server, prompt, replies)
        assert server.wait_ended() == 1
        assert time.monotonic() - begin < 2 * MOST_S
        thread.join(20)
        assert_all_gone(processes)
        assert "in _advance" in server.log
        assert "process scheduler" in server.log
        if prompt == "STUCK":
            assert "a pass has hung for more than watchdog_timeout=0.5 seconds" in server.log
            assert "ended with exit code 70" in server.log


@pytest.mark.parametrize(
    "name", ["api", *(pytest.param(n, marks=pytest.mark.slow) for n in ("scheduler", "detokenizer"))]
)
def test_kill_9_under_load_ends_all_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    replies: list[object] = []
    uds, crashes = tmp_path / "socket", tmp_path / "crashes"
    with serving("--crash-dump-folder", str(crashes)) as server:
        threads = [post(server, text, replies) for text in ["HANG"] * 4 + ["FOREVER"] * 4]
        wait_for_running(server, 4)
        processes, folder = all_processes(server), socket_folder(server)
        victim = psutil.Process(server.process.pid) if name == "api" else server.children()[f"sgl::{name}"]
        begin = time.monotonic()
        victim.kill()
        assert server.wait_ended() == (-signal.SIGKILL if name == "api" else 1)
        assert_all_gone(processes)
        assert time.monotonic() - begin < MOST_S
        for thread in threads:
            thread.join(20)
        assert len(replies) == 8
        assert not folder.exists()
        assert not uds.exists()
        if name == "api":
            assert "parent process died" in server.log
        else:
            assert f"process {name}" in server.wait_for_line("ended by signal SIGKILL")
            (dump,) = crashes.glob("crash-*.jsonl")
            lines = [json.loads(line) for line in dump.read_text().splitlines()]
            assert [line["status"] for line in lines if line["body"]["text"] == "HANG"] == [0] * 4


def test_a_unix_socket_is_listened_on_and_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    # What a server that was killed leaves behind.
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serving("--uds", str(path)) as server:
        assert f"serving url=unix:{path}" in server.log
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://server") as client:
            assert client.post("/generate", json={"text": "say:a"}).json()["text"] == "a"
        second = ServerProcess("--uds", str(path))
        assert second.wait_ended() == 1
        assert f"uds is '{path}', on which another server listens" in second.log
        second.close()
        server.process.terminate()
        assert server.wait_ended() == 0
        assert not path.exists()


@pytest.mark.slow
def test_a_killed_server_takes_its_unix_socket_along(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with serving("--uds", str(path)) as server:
        processes = all_processes(server)
        server.process.kill()
        server.wait_ended()
        assert_all_gone(processes)
        assert not path.exists()


def test_a_file_in_the_place_of_the_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    server = ServerProcess("--uds", str(path))
    assert server.wait_ended() == 1
    assert "which is there and is no socket" in server.log
    assert path.read_text() == "mine"
    server.close()


def test_every_line_is_json_where_that_is_wanted() -> None:
    with serving(
        "--log-format", "json", "--log-level", "debug", "--log-level-http", "info", "--log-requests"
    ) as server:
        requests.post(server.url + "/generate", json={"text": "say:a"}, timeout=20).raise_for_status()
        requests.post(server.url + "/generate", data=b"{", timeout=20)
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"nonsense\r\n\r\n")
            with client.makefile("rb") as replies:
                replies.read()
        requests.post(server.url + "/generate", json={"text": "CRASH"}, timeout=20)
        assert server.wait_ended() == 1
        lines = [json.loads(line) for line in server.lines]
        assert {line["process"] for line in lines} == {"sgl::api", "sgl::scheduler"}
        assert any("exception" in line and "the script says so" in line["exception"] for line in lines)
        assert any(line["message"].startswith("http request method=POST") for line in lines)


@pytest.mark.slow
def test_options_are_told_at_start_with_their_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGL_MAX_SESSIONS", "5")
    with serving("--enable-metrics", "--api-key", "hidden-key") as server:
        assert "option max_sessions=5 (default 1024) from environment" in server.log
        assert "option enable_metrics changes nothing: /metrics is always there" in server.log
        assert "option api_key=***" in server.log
        assert "hidden-key" not in server.log


@pytest.mark.slow
def test_no_folder_is_left_where_the_start_fails() -> None:
    before = set(Path(tempfile.gettempdir()).glob("sgl-*"))
    server = ServerProcess(model_path="missing")
    assert server.wait_ended() == 1
    server.close()
    assert not set(Path(tempfile.gettempdir()).glob("sgl-*")) - before
