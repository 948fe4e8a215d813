"""What is written down of requests, switched at run time; dumps and their replay; load."""

import gc
import json
import logging
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from fakes.scripted_server import ScriptedServer
from sgl_runtime.cli import main
from sgl_runtime.server.request_dump import CRASH_WINDOW_S, RecordedRequest, RequestDump

LINES = "sgl_runtime.server.request_log"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def post(server: ScriptedServer, path: str, body: Any, **headers: str) -> requests.Response:
    return requests.post(server.url + path, json=body, headers=headers, timeout=20)


def request_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.name == LINES]
    caplog.clear()
    return lines


def test_request_lines_are_switched_at_run_time(server: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LINES)
    body = {"text": "say:" + "long " * 20, "rid": "r1", "sampling_params": {"temperature": 0.5}}
    post(server, "/generate", body)
    assert request_lines(caplog) == []
    for level in range(4):
        told = post(server, "/configure_logging", {"log_requests": True, "log_requests_level": level}).json()
        assert (told["log_requests"], told["log_requests_level"]) == (True, level)
        post(server, "/generate", body, **{"x-request-id": "call-7"})
        received, ended = request_lines(caplog)
        assert received.startswith("request received rid='r1' prompt_tokens=")
        assert "request_id=call-7" in received
        assert "request_id=call-7" in ended
        assert ("'temperature': 0.5" in received) == (level >= 1)
        assert ("long long" in received) == ("long long" in ended) == (level >= 2)
    post(server, "/configure_logging", {"log_requests": False})
    post(server, "/generate", body)
    assert request_lines(caplog) == []


def test_level_2_cuts_long_texts_and_level_3_does_not(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sgl_runtime.server.request_log.SHORT_TEXT", 10)
    caplog.set_level(logging.INFO, LINES)
    text = "say:" + "x" * 50
    for level, is_cut in ((2, True), (3, False)):
        post(server, "/configure_logging", {"log_requests": True, "log_requests_level": level})
        post(server, "/generate", {"text": text})
        received, ended = request_lines(caplog)
        assert ("x" * 50 in received) == ("x" * 50 in ended) == (not is_cut)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"log_requests": 1}, "log_requests"),
        ({"log_requests_level": 4}, "log_requests_level"),
        ({"dump_requests_threshold": 0}, "dump_requests_threshold"),
        ({"dump_requests_folder": 3}, "dump_requests_folder"),
        ({"log_request": True}, "log_request"),
    ],
)
def test_wrong_fields_are_refused_and_change_nothing(server: ScriptedServer, body: dict[str, Any], param: str) -> None:
    before = post(server, "/configure_logging", {}).json()
    reply = post(server, "/configure_logging", {"log_requests": True, **body})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert post(server, "/configure_logging", {}).json() == before


def dumps_in(folder: Path, count: int) -> list[Path]:
    deadline = time.monotonic() + 10
    while len(files := sorted(folder.glob("*.jsonl"))) < count:
        assert time.monotonic() < deadline, "no dump was written"
        threading.Event().wait(0.005)
    return files


def test_after_so_many_requests_a_dump_appears_that_can_be_replayed(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "dumps"
    post(server, "/configure_logging", {"dump_requests_folder": str(folder), "dump_requests_threshold": 3})
    post(server, "/generate", {"text": "say:a"}, authorization="Bearer secret")
    post(server, "/flush_cache", {})
    assert post(server, "/generate", {"text": 5}).status_code == 400
    assert not folder.exists()
    with requests.post(server.url + "/generate", json={"text": "say:bc", "stream": True}, timeout=20) as stream:
        assert stream.text.endswith("data: [DONE]\n\n")
    (file,) = dumps_in(folder, 1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret" not in file.read_text()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["path"], line["status"]) for line in lines] == [
        ("/generate", 200),
        ("/generate", 400),
        ("/generate", 200),
    ]
    assert [line["body"]["text"] for line in lines] == ["say:a", 5, "say:bc"]
    assert lines[0]["reply"]["text"] == "a"
    assert lines[2]["reply"].endswith("data: [DONE]\n\n")
    post(server, "/configure_logging", {"dump_requests_folder": ""})
    assert main(["replay", str(file), "--url", server.url, "--speed", "0"]) == 0
    assert "3 requests: 2 x 200, 1 x 400\nevery reply has the status that it had" in capsys.readouterr().out
    assert main(["replay", str(file), "--url", server.url, "--speed", "1000", "--concurrency", "1"]) == 0
    capsys.readouterr()
    # One that ends differently is named.
    file.write_text(file.read_text().replace('"status":400', '"status":200'))
    assert main(["replay", str(file), "--url", server.url, "--speed", "0"]) == 1
    assert "request 2 /generate: was 200, is 400" in capsys.readouterr().out


def test_what_has_not_been_written_is_written_at_the_end(tmp_path: Path) -> None:
    with ScriptedServer(dump_requests_folder=str(tmp_path)) as server:
        post(server, "/generate", {"text": "say:a"})
        assert list(tmp_path.iterdir()) == []
    assert len(dumps_in(tmp_path, 1)) == 1


def test_a_folder_that_cannot_be_written_costs_no_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with ScriptedServer(dump_requests_folder=str(tmp_path / "file"), dump_requests_threshold=1) as server:
        for _ in range(2):
            assert post(server, "/generate", {"text": "say:a"}).ok
    assert "requests not written" in caplog.text


def test_replay_says_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "nowhere")]) == 2
    assert "nowhere' cannot be read: No such file" in capsys.readouterr().err
    for text, number in (("{}\n", 1), ("\n[[\n", 2), ("\n" * 4 + "[" * 100_000, 5)):
        (tmp_path / "bad.jsonl").write_text(text)
        assert main(["replay", str(tmp_path / "bad.jsonl")]) == 2
        assert f"bad.jsonl, line {number}, is no request of a dump: " in capsys.readouterr().err


def test_a_crash_dump_has_what_came_of_late_and_what_has_no_reply(tmp_path: Path) -> None:
    dump = RequestDump(folder=None, threshold=1, crash_folder=str(tmp_path))
    old = RecordedRequest(1000.0, "/generate", "old", bytearray(b'"old"'))
    new = RecordedRequest(1001.0 + CRASH_WINDOW_S, "/generate", "new", bytearray(b'{"text": "a"}'))
    for record in (old, new):
        dump.begin(record)
        dump.body_read(record)
    dump.write_crash()
    (line,) = (json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines())
    assert (line["request_id"], line["status"], line["body"]) == ("new", 0, {"text": "a"})


def test_a_crash_dump_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgl_runtime.server.request_dump.MAX_CRASH_BYTES", 1000)
    dump = RequestDump(folder=None, threshold=1, crash_folder=str(tmp_path))
    for number in range(100):
        record = RecordedRequest(float(number), "/generate", str(number), bytearray(b"x" * 100))
        dump.begin(record)
        dump.body_read(record)
    dump.write_crash()
    (path,) = tmp_path.iterdir()
    ids = [json.loads(line)["request_id"] for line in path.read_text().splitlines()]
    assert ids == [str(number) for number in range(90, 100)]


def test_load_and_collector(server: ScriptedServer) -> None:
    load = requests.get(server.url + "/get_load", timeout=20).json()
    assert (load["num_reqs"], load["num_tokens"], load["max_total_num_tokens"]) == (0, 0, 100)
    try:
        assert post(server, "/freeze_gc", {}).json()["success"] is True
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("body", "param"),
    [({"activities": ["TPU"]}, "activities"), ({"num_steps": 0}, "num_steps"), ({"output_dir": ""}, "output_dir")],
)
def test_wrong_profiles_are_refused(server: ScriptedServer, body: dict[str, Any], param: str) -> None:
    reply = post(server, "/start_profile", body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
