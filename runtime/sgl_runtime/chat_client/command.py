"""The command `sgl chat`."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from sgl_runtime.chat_client.conversation import Conversation, Piece
from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.server_address import server_address

_HELP = """\
/again          another answer to the latest question
/forget         begin anew
/system TEXT    set the system message; without TEXT show it
/save FILE      write the conversation as JSON
/help           these lines
/quit           end, as Ctrl+D does
Ctrl+C stops an answer.  A line that ends with \\ goes on in the next one."""


def main(arguments: Sequence[str]) -> int:
    """Run `sgl chat`.

    Returns:
        The exit code: 0 at the end of the input, 1 when the server could not be asked.
    """
    options = _parser().parse_args(arguments)
    headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    console = Console()
    timeout = httpx.Timeout(options.timeout, connect=10.0)
    with httpx.Client(base_url=options.base_url, headers=headers, timeout=timeout) as http:
        try:
            talk = Conversation(http, options.model or _first_model(http), options.system, _fields(options))
        except SglRuntimeError as error:
            print(f"sgl chat: {error.message}", file=sys.stderr)
            return 1
        return ChatLoop(talk, console, is_terminal=sys.stdin.isatty()).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sgl chat", usage="%(prog)s [options]", description="Chat with a served model.", allow_abbrev=False
    )
    add = parser.add_argument
    add(
        "--base-url",
        metavar="URL",
        type=server_address,
        default="http://127.0.0.1:30000",
        help="the server (default: %(default)s)",
    )
    add("--api-key", metavar="KEY", help="key that the server asks for")
    add("--model", metavar="NAME", help="name in requests; by default the first of /v1/models")
    add("--system", metavar="TEXT", default="", help="message in front of the conversation")
    add("--temperature", metavar="X", type=float, help="by default the server's")
    add("--top-p", metavar="X", type=float, help="by default the server's")
    add("--max-tokens", metavar="N", type=int, help="most tokens of an answer")
    add("--seed", metavar="N", type=int, help="for answers that repeat")
    add("--json-schema", metavar="FILE", type=Path, help="JSON Schema that every answer matches")
    add(
        "--timeout",
        metavar="X",
        type=float,
        default=600.0,
        help="seconds between two pieces of an answer (default: 600)",
    )
    return parser


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    names = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_completion_tokens", "seed": "seed"}
    fields = {field: value for name, field in names.items() if (value := vars(options)[name]) is not None}
    if options.json_schema is not None:
        try:
            schema = json.loads(options.json_schema.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SglRuntimeError(f"--json-schema {str(options.json_schema)!r} cannot be read: {error}") from error
        fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return fields


def _first_model(http: httpx.Client) -> str:
    try:
        response = http.get("/v1/models")
        if response.status_code == 401:
            raise SglRuntimeError("the server asks for a key; give it with --api-key")
        name: str = response.raise_for_status().json()["data"][0]["id"]
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        raise SglRuntimeError(
            f"{error.request.url} answers with status {status}; --base-url names the server"
        ) from error
    except httpx.HTTPError as error:
        raise SglRuntimeError(
            f"no server answers at {http.base_url} ({error or type(error).__name__}); start one with sgl serve, or name"
            " another with --base-url"
        ) from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise SglRuntimeError(f"{response.url} names no model; give one with --model") from error
    return name


class ChatLoop:
    """Reads questions and commands, and prints answers.

    Args:
        talk: The conversation.
        console: Where answers go.
        is_terminal: Whether somebody types; without, each line of the input is a question, and only answers are shown.
    """

    def __init__(self, talk: Conversation, console: Console, *, is_terminal: bool) -> None:
        self._talk = talk
        self._console = console
        self._is_terminal = is_terminal
        self._failed = False
        self._commands: dict[str, Callable[[str], None]] = {
            "/again": lambda _: self._show(talk.again()),
            "/forget": lambda _: self._forget(),
            "/system": self._system,
            "/save": self._save,
            "/help": lambda _: self._note(_HELP),
        }

    def run(self) -> int:
        """Until the input ends; the exit code."""
        if self._is_terminal:
            # It gives `input` lines that can be edited and called back.
            import readline

            readline.set_auto_history(True)
            self._note(f"{self._talk.model} at {self._talk.http.base_url}; /help shows the commands")
        while (line := self._read()) is not None:
            word, _, rest = line.partition(" ")
            if word == "/quit":
                break
            if line.strip():
                self._failed = not self._act(word, rest.strip(), line) or self._failed
        return int(self._failed and not self._is_terminal)

    def _act(self, word: str, rest: str, line: str) -> bool:
        """Do what a line says; whether it went well."""
        try:
            if word in self._commands and self._is_terminal:
                self._commands[word](rest)
            elif word.startswith("/") and self._is_terminal:
                self._note(f"{word} is no command\n{_HELP}")
            else:
                self._show(self._talk.ask(line))
        except SglRuntimeError as error:
            self._console.out(error.message, style="red", highlight=False) if self._is_terminal else print(
                error.message, file=sys.stderr
            )
            return False
        return True

    def _read(self) -> str | None:
        """The next line, put together where it was broken with a backslash; None at the end."""
        lines: list[str] = []
        while True:
            try:
                line = input(("... " if lines else "> ") if self._is_terminal else "")
            except EOFError:
                return "\n".join(lines) if lines else None
            except KeyboardInterrupt:
                self._console.print()
                lines = []
                continue
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line.removesuffix("\\"))

    def _show(self, pieces: Generator[Piece, None, None]) -> None:
        begin, first = time.monotonic(), None
        was_reasoning = False
        try:
            for piece in pieces:
                first = first or time.monotonic()
                if was_reasoning and not piece.is_reasoning:
                    self._console.print("\n")
                was_reasoning = piece.is_reasoning
                self._console.out(piece.text, end="", style="dim" if piece.is_reasoning else None, highlight=False)
        except KeyboardInterrupt:
            self._console.print(" (stopped)", style="dim", end="")
        finally:
            # Closing the stream ends the request at the server.
            pieces.close()
            self._console.print()
        if self._is_terminal and first is not None:
            self._note(self._facts(first - begin, time.monotonic() - first))

    def _facts(self, wait_s: float, rest_s: float) -> str:
        facts = self._talk.facts
        if not facts.output_tokens:
            return f"first token after {wait_s:.2f} s"
        rate = f", {(facts.output_tokens - 1) / rest_s:.0f} tokens/s" if rest_s > 0 and facts.output_tokens > 1 else ""
        end = "" if facts.finish_reason in (None, "stop") else f", ended by {facts.finish_reason}"
        cached = f" ({facts.cached_tokens} cached)" if facts.cached_tokens else ""
        counts = f"{facts.prompt_tokens} tokens in{cached}, {facts.output_tokens} out"
        return f"{counts}; first after {wait_s:.2f} s{rate}{end}"

    def _forget(self) -> None:
        self._talk.forget()
        self._note("forgotten")

    def _system(self, text: str) -> None:
        if text:
            self._talk.system = text
        self._note(f"system message: {self._talk.system or 'none'}")

    def _save(self, name: str) -> None:
        if not name:
            raise SglRuntimeError("/save needs the name of a file")
        system = [{"role": "system", "content": self._talk.system}] if self._talk.system else []
        try:
            Path(name).write_text(json.dumps([*system, *self._talk.messages], indent=1, ensure_ascii=False) + "\n")
        except OSError as error:
            raise SglRuntimeError(f"{name!r} cannot be written: {error.strerror}") from error
        self._note(f"written to {name}")

    def _note(self, text: str) -> None:
        self._console.out(text, style="dim", highlight=False)
