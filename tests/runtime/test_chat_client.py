"""`sgl chat` against a real server over HTTP."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from fakes.chat_server import ChatServer
from sgl_runtime.chat_client.command import ChatLoop, main
from sgl_runtime.chat_client.conversation import Conversation
from sgl_runtime.errors import SglRuntimeError


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.fixture
def talk(server: ChatServer) -> Iterator[Conversation]:
    with httpx.Client(base_url=server.url, timeout=30) as http:
        yield Conversation(http, "m")


def read(pieces: Any) -> str:
    return "".join(piece.text for piece in pieces)


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    waiting = list(lines)

    def line_of(prompt: str = "") -> str:
        if not waiting:
            raise EOFError
        return waiting.pop(0)

    monkeypatch.setattr("builtins.input", line_of)


def test_a_conversation_remembers_what_was_said(server: ChatServer, talk: Conversation) -> None:
    talk.system = "be kind"
    server.say("first")
    assert read(talk.ask("one")) == "first"
    assert talk.facts.output_tokens == len("first") + 1
    assert talk.facts.finish_reason == "stop"
    server.say("second")
    assert read(talk.ask("two")) == "second"
    seen = [(message["role"], message["content"]) for message in server.template.rendered[-1][0]]
    assert seen == [("system", "be kind"), ("user", "one"), ("assistant", "first"), ("user", "two")]
    server.say("better")
    assert read(talk.again()) == "better"
    assert [message["content"] for message in talk.messages] == ["one", "first", "two", "better"]
    talk.forget()
    with pytest.raises(SglRuntimeError, match="nothing was asked yet"):
        next(talk.again())


def test_a_question_that_is_refused_is_taken_back(talk: Conversation) -> None:
    talk.options["temperature"] = -3
    with pytest.raises(SglRuntimeError, match="temperature is -3"):
        read(talk.ask("one"))
    assert talk.messages == []


def test_an_answer_that_is_stopped_is_kept_as_far_as_it_was_read(server: ChatServer, talk: Conversation) -> None:
    server.say("x" * 2000)
    pieces = talk.ask("one")
    begun = next(pieces).text
    pieces.close()
    assert talk.messages[-1] == {"role": "assistant", "content": begun}
    assert 0 < len(begun) < 2000


def test_the_loop_at_a_terminal(
    server: ChatServer, talk: Conversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(file=io.StringIO(), width=200)
    server.say("[b]not markup[/b]")
    path = tmp_path / "talk.json"
    typed(
        monkeypatch, "/system be brief", "", "how \\", "are you", "/nonsense", "/again", f"/save {path}", "/quit", "no"
    )
    assert ChatLoop(talk, console, is_terminal=True).run() == 0
    shown = console.file.getvalue()
    assert shown.count("[b]not markup[/b]") == 2
    assert "system message: be brief" in shown
    assert "/nonsense is no command" in shown
    assert " tokens in" in shown
    assert json.loads(path.read_text()) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "how \nare you"},
        {"role": "assistant", "content": "[b]not markup[/b]"},
    ]


def test_the_loop_in_a_pipe_shows_answers_alone(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.say(lambda message: f"seed {message.sampling.sampling_seed}")
    typed(monkeypatch, "one", "/again is a question here")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert main(["--base-url", server.url, "--seed", "7"]) == 0
    assert capsys.readouterr().out == "seed 7\nseed 7\n"
    typed(monkeypatch, "one")
    assert main(["--base-url", server.url + "/v1", "--top-p", "4"]) == 1
    assert "top_p is 4" in capsys.readouterr().err
    assert main(["--base-url", server.url + "/elsewhere"]) == 1
    assert f"{server.url}/elsewhere/v1/models answers with status 404" in capsys.readouterr().err


def test_no_server_is_told_kindly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--base-url", "http://127.0.0.1:9"]) == 1
    assert "start one with sgl serve" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["--base-url", "localhost:30000"])
    assert "'localhost:30000' must begin with http:// or https://" in capsys.readouterr().err
