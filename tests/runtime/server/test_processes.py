"""The real processes of `sgl serve`, joined by ZeroMQ, with a scripted scheduler."""

import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from fakes.server_process import ServerProcess, free_port


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    server = ServerProcess()
    try:
        server.wait_for_line("serving url=")
        yield server
    finally:
        server.close()


def in_background(server: ServerProcess, text: str) -> tuple[threading.Thread, list[Any]]:
    """Send a request from a thread, and wait until it runs."""
    replies: list[Any] = []

    def send() -> None:
        try:
            replies.append(requests.post(server.url + "/generate", json={"text": text}, timeout=20))
        except requests.RequestException as error:
            replies.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    while not requests.get(server.url + "/get_server_info", timeout=20).json()["internal_states"][0]["num_running"]:
        time.sleep(0.005)
    return thread, replies


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive


def test_requests_pass_through_all_processes_and_sigterm_ends_them(server: ServerProcess) -> None:
    reply = requests.post(server.url + "/generate", json={"text": "say:h€llo"}, timeout=20).json()
    assert reply["text"] == "h€llo"
    assert requests.get(server.url + "/health", timeout=20).status_code == 200
    children = server.children()
    assert set(children) == {"sgl::scheduler", "sgl::detokenizer"}
    assert psutil.Process(server.process.pid).cmdline()[0] == "sgl::api"
    folder = {connection.laddr for connection in psutil.Process(server.process.pid).net_connections("unix")}
    paths = [Path(str(path)) for path in folder if "/sgl-" in str(path)]
    server.process.terminate()
    assert server.wait_ended() == 0
    assert_gone(list(children.values()))
    assert "Traceback" not in server.log
    assert paths
    assert not any(path.exists() for path in paths)
    assert "name=scheduler seconds=" in server.log


def test_many_requests_at_once_get_each_their_own_answer(server: ServerProcess) -> None:
    def ask(number: int) -> str:
        stop = {"sampling_params": {"stop": "END"}}
        reply = requests.post(server.url + "/generate", json={"text": f"say:é{number} END", **stop}, timeout=20)
        return str(reply.json()["text"])

    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(ask, range(240)))
    assert answers == [f"é{number} " for number in range(240)]
    info = requests.get(server.url + "/get_server_info", timeout=20).json()
    assert info["internal_states"][0]["num_running"] == 0


def test_ctrl_c_with_a_request_running_ends_quickly_and_well(server: ServerProcess) -> None:
    thread, replies = in_background(server, "HANG")
    children = server.children()
    # A terminal sends it to every process of the group.
    for process in [*children.values(), psutil.Process(server.process.pid)]:
        process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    assert server.wait_ended() == 0
    assert time.monotonic() - begin < 8
    thread.join(20)
    assert replies[0].status_code == 503
    assert_gone(list(children.values()))
    assert "Traceback" not in server.log


@pytest.mark.parametrize("name", ["scheduler", "detokenizer"])
def test_killed_process_ends_the_server_with_its_cause(server: ServerProcess, name: str) -> None:
    thread, replies = in_background(server, "HANG")
    children = server.children()
    children[f"sgl::{name}"].kill()
    assert server.wait_ended() == 1
    thread.join(20)
    assert replies[0].status_code == 500
    assert f"process {name}" in replies[0].json()["error"]["message"]
    line = server.wait_for_line("ended by signal SIGKILL")
    assert f"process {name}" in line
    assert_gone(list(children.values()))


def test_crash_of_the_scheduler_is_logged_with_its_traceback(server: ServerProcess) -> None:
    response = requests.post(server.url + "/generate", json={"text": "CRASH"}, timeout=20)
    assert response.status_code == 500
    assert server.wait_ended() == 1
    assert "RuntimeError: the script says so" in server.log
    assert "process=sgl::scheduler" in server.wait_for_line("process failed")
    assert "process scheduler" in server.wait_for_line("ended with exit code 1")


def test_killed_parent_leaves_no_orphan(server: ServerProcess) -> None:
    children = server.children()
    server.process.kill()
    assert_gone(list(children.values()))
    assert server.wait_ended() == -signal.SIGKILL
    assert "parent process died" in server.log


def one_sentence(server: ServerProcess, code: int) -> str:
    try:
        assert server.wait_ended() == code, server.log
        said = [line for line in server.lines if " INFO process=" not in line]
        assert len(said) == 1, server.log
        return said[0]
    finally:
        server.close()


def test_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = one_sentence(ServerProcess(port=port, model_path="slow"), 1)
    assert said == f"sgl serve: port {port} on 127.0.0.1 is in use; choose another with --port\n"


def test_of_two_servers_started_at_once_on_a_port_one_serves_and_one_says_why_not() -> None:
    port = free_port()
    servers = [ServerProcess(port=port) for _ in range(2)]
    while all(server.process.poll() is None for server in servers):
        time.sleep(0.01)
    loser, winner = sorted(servers, key=lambda server: server.process.poll() is None)
    try:
        winner.wait_for_line("serving url=")
        assert requests.get(winner.url + "/health", timeout=20).status_code == 200
    finally:
        winner.close()
    said = one_sentence(loser, 1)
    assert said == f"sgl serve: port {port} on 127.0.0.1 is in use; choose another with --port\n"


def test_missing_model_is_one_sentence() -> None:
    assert one_sentence(ServerProcess(model_path="missing"), 1) == "sgl serve: model path 'missing' does not exist\n"


def test_unknown_host_is_one_sentence() -> None:
    assert "host 'no such host' is no address" in one_sentence(ServerProcess("--host", "no such host"), 1)


def test_unknown_flag_is_one_sentence_with_the_nearest() -> None:
    said = one_sentence(ServerProcess("--max-running-request", "5"), 2)
    assert "--max-running-request is not an option; did you mean --max-running-requests?" in said


def test_error_while_loading_is_told_with_its_traceback() -> None:
    server = ServerProcess(model_path="broken")
    try:
        assert server.wait_ended() == 1
        assert "sgl serve: sgl::scheduler failed: ValueError: the weights make no sense\n" in server.lines
        assert "Traceback" in server.log
    finally:
        server.close()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_signal_while_loading_ends_well(number: signal.Signals) -> None:
    server = ServerProcess(model_path="slow")
    try:
        server.wait_for_line("tokenizer ready")
        children = list(psutil.Process(server.process.pid).children())
        server.process.send_signal(number)
        assert server.wait_ended() == 0, server.log
        assert_gone(children)
        assert "Traceback" not in server.log
    finally:
        server.close()
