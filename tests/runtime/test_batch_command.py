"""`sgl batch`: files that are checked, answers that survive whatever ends a run, and runs against real servers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.chat_server import ChatServer
from fakes.scripted_composition import SCRIPTED
from sgl_runtime.batch_command.answer_file import AnswerFile
from sgl_runtime.batch_command.batch_file import BatchRequest, check_requests
from sgl_runtime.batch_command.command import main
from sgl_runtime.batch_command.own_model import run_on_own_model
from sgl_runtime.batch_command.run import BatchRun
from sgl_runtime.errors import ConfigError

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi", "max_tokens": 9},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
}


def line(custom_id: str, url: str = "/v1/completions", **body: Any) -> str:
    given = {**BODIES.get(url, {}), **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": given})


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(each + "\n" for each in lines), encoding="utf-8")
    return path


def answers(path: Path) -> dict[str, Any]:
    read = [json.loads(each) for each in path.read_text(encoding="utf-8").splitlines()]
    assert len({answer["custom_id"] for answer in read}) == len(read)
    return {answer["custom_id"]: answer for answer in read}


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer() as server:
        server.say("fine")
        yield server


def run(server: ChatServer, given: Path, output: Path, *flags: str) -> int:
    return main([str(given), "-o", str(output), "--base-url", server.url, *flags])


def test_every_url_is_answered(server: ChatServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [line(url, url) for url in BODIES]
    given, output = write(tmp_path / "in.jsonl", *lines, line("wrong", temperature=-1)), tmp_path / "out.jsonl"
    assert run(server, given, output) == 1
    found = answers(output)
    assert found["/v1/chat/completions"]["response"]["body"]["choices"][0]["message"]["content"] == "fine"
    assert found["/v1/messages"]["response"]["body"]["content"][0]["text"] == "fine"
    assert {answer["response"]["status_code"] for answer in found.values()} == {200, 400}
    assert found["wrong"]["response"]["body"]["error"]["param"] == "temperature"
    assert all(answer["error"] is None and answer["response"]["request_id"] for answer in found.values())
    said = capfd.readouterr().err
    assert "5 requests: 4 answered, 1 failed" in said
    assert "--rerun-failed" in said


def test_a_second_run_does_what_is_left(server: ChatServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given, output = write(tmp_path / "in.jsonl", line("a"), line("b", temperature=-1)), tmp_path / "out.jsonl"
    assert run(server, given, output) == 1
    before = output.read_bytes()
    # An error is an answer, and no good one: scripts go by the exit code.
    assert run(server, given, output) == 1
    assert output.read_bytes() == before
    assert "all 2 requests have an answer; 1 of them are errors, which --rerun-failed" in capfd.readouterr().err
    write(given, line("c"), line("b"), line("a"))
    assert run(server, given, output) == 1
    # Answers stand in the order in which they came; what was there before stays in front.
    assert set(answers(output)) == {"a", "b", "c"}
    assert output.read_bytes().startswith(before)
    assert run(server, given, output, "--rerun-failed") == 0
    assert set(answers(output)) == {"a", "b", "c"}
    assert answers(output)["b"]["response"]["status_code"] == 200


def test_a_torn_line_is_answered_again(server: ChatServer, tmp_path: Path) -> None:
    given, output = write(tmp_path / "in.jsonl", line("a"), line("b"), line("c")), tmp_path / "out.jsonl"
    assert run(server, given, output) == 0
    whole = output.read_bytes()
    kept = whole.splitlines(keepends=True)[:2]
    for cut in (len(whole) - 1, len(whole) - 20, len(b"".join(kept)) + 1):
        output.write_bytes(whole[:cut])
        assert run(server, given, output) == 0
        assert len(answers(output)) == 3
        assert output.read_bytes().startswith(b"".join(kept))


def test_a_run_that_is_killed_goes_on(server: ChatServer, tmp_path: Path) -> None:
    given, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [line(str(number)) for number in range(12)]
    command = [sys.executable, "-m", "sgl_runtime", "batch", str(given), "-o", str(output), "--base-url", server.url]
    for number, code, hanging in ((signal.SIGKILL, -signal.SIGKILL, 4), (signal.SIGINT, 130, 9)):
        write(given, *lines[:hanging], line(str(hanging), prompt="HANG"), *lines[hanging + 1 :])
        process = subprocess.Popen(
            [*command, "--max-concurrency", "1"],
            env={**os.environ, "PYTHONWARNINGS": "error"},
            # Whoever runs the tests may ignore the signal, and a child would, too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        with httpx.Client(base_url=server.url) as http:
            while not output.exists() or output.read_bytes().count(b"\n") < hanging:
                assert process.poll() is None
                # A look at the file costs one request of the server's, so that the other process gets its turn.
                http.get("/health")
        process.send_signal(number)
        assert process.wait(30) == code
        assert output.read_bytes().count(b"\n") == hanging
    write(given, *lines)
    assert run(server, given, output) == 0
    found = list(answers(output))
    assert (found[:9], set(found[9:])) == ([str(number) for number in range(9)], {"9", "10", "11"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no requests"),
        ("nothing", "line 1: JSON is malformed"),
        ('{"method": "POST"}', "line 1: Object missing required field `custom_id`"),
        (
            '{"custom_id": 5, "method": "POST", "url": "/v1/completions", "body": {}}',
            "line 1: Expected `str`, got `int`",
        ),
        (line(""), "line 1: custom_id is empty"),
        (line("a") + "\n\n" + line("a"), "line 3: custom_id 'a' stands on a line before"),
        (line("a", "/v1/images"), "line 1: url is '/v1/images'; it must be one of /v1/chat/completions"),
        (line("a").replace("POST", "GET"), "line 1: method is 'GET'; it must be \"POST\""),
        (line("a", stream=True), "line 1: body.stream is set"),
        ('{"custom_id": "a", "body": {"a": ' + "[" * 5000, "line 1: it is nested too deeply"),
        ("\n".join(["x"] * 9), "and maybe more"),
    ],
)
def test_files_that_are_wrong_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_requests(write(tmp_path / "in.jsonl", text))
    assert said in caught.value.message


def test_flags_that_are_wrong_are_refused(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, output = write(tmp_path / "in.jsonl", line("a")), tmp_path / "out.jsonl"
    for flags, said in (
        (["--base-url", "http://127.0.0.1:9"], "no server answers at http://127.0.0.1:9"),
        (["--base-url", server.url, "--model-path", "x"], "--base-url and --model-path are both given"),
        (["--device", "cpu"], "--device is not an option; those of sgl serve are taken with --model-path"),
        (["--retry", "-1"], "-1 is less than 0"),
        (["--model-path", "x", "--devise", "cpu"], "--devise is not an option; did you mean --device?"),
    ):
        try:
            code: Any = main([str(given), "-o", str(output), *flags])
        except SystemExit as error:
            code = error.code
        assert code == 2
        assert said in capsys.readouterr().err
    assert main([str(tmp_path / "none"), "-o", str(output)]) == 2
    assert main([str(given), "-o", str(tmp_path / "none" / "out")]) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"custom_id": "a", "response": null}\n{"x": 1}\n', "line 2, is no answer of a batch"),
        # Requests, whose last line has no line break: it is not torn.
        (line("a") + "\n" + line("b"), "line 1, is no answer of a batch"),
        (line("a"), "line 1, is no answer of a batch, nor the beginning of one"),
        ("notes", "line 1, is no answer of a batch, nor the beginning of one"),
    ],
)
def test_a_file_that_holds_other_lines_is_left_alone(tmp_path: Path, text: str, said: str) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text(text, encoding="utf-8")
    for keeps_failed in (True, False):
        with pytest.raises(ConfigError, match=said), AnswerFile(output, keeps_failed=keeps_failed):
            pass
        assert output.read_text(encoding="utf-8") == text


def test_answers_need_a_file_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = tmp_path / "in.jsonl"
    given.write_text(line("a"), encoding="utf-8")
    for output, said in ((given, "holds the requests"), (Path(os.devnull), "is no regular file")):
        assert main([str(given), "-o", str(output)]) == 2
        assert said in capsys.readouterr().err
    assert given.read_text(encoding="utf-8") == line("a")


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with (
        AnswerFile(output, keeps_failed=True) as first,
        pytest.raises(ConfigError, match="is being written by another run"),
        AnswerFile(output, keeps_failed=True),
    ):
        pass
    assert first.done == set()


def batch(handler: Callable[[httpx.Request], httpx.Response], *, max_retries: int, ids: str = "a") -> list[Any]:
    written: list[Any] = []

    async def work() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handler), base_url="http://x") as http:
            requests = (BatchRequest(custom_id=name, url="/v1/completions", body=b"{}") for name in ids)
            await BatchRun(http, written.append, max_retries=max_retries).run(requests, concurrency=2)

    asyncio.run(work())
    return written


def test_what_is_transient_is_sent_again() -> None:
    replies = [httpx.Response(503, json={}), httpx.Response(200, json={"usage": {"prompt_tokens": 1}})]
    assert batch(lambda _: replies.pop(0), max_retries=1)[0]["response"]["status_code"] == 200
    assert batch(lambda _: httpx.Response(503, json={}), max_retries=0)[0]["response"]["status_code"] == 503
    assert batch(lambda _: httpx.Response(400, json={}), max_retries=5)[0]["response"]["status_code"] == 400


def test_what_has_no_answer_says_why() -> None:
    def slow(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("too slow")

    answer = batch(slow, max_retries=0)[0]
    assert (answer["response"], answer["error"]) == (None, {"code": "no_answer", "message": "ReadTimeout: too slow"})
    answer = batch(lambda _: httpx.Response(200, text="<html>"), max_retries=0)[0]
    assert answer["error"]["message"].startswith("status 200 without JSON")


def test_a_server_that_is_gone_ends_the_run() -> None:
    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(ConfigError, match="the server at http://x is gone: refused"):
        batch(gone, max_retries=0, ids="abcdef")


def test_a_model_in_this_process_answers() -> None:
    found: list[Any] = []

    async def ask(app: Any) -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as http:
            run = BatchRun(http, found.append, max_retries=0)
            urls = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages")
            requests = (
                BatchRequest(custom_id=url, url=url, body=json.dumps({**BODIES[url], "model": "m"}).encode())
                for url in urls
            )
            await run.run(requests, concurrency=4)

    run_on_own_model(["--model-path", "scripted"], ask, factories=SCRIPTED)
    assert {answer["response"]["status_code"] for answer in found} == {200}
    assert len(found) == 4
