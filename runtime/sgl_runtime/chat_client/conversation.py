"""Conversation: messages so far, and the next answer as it comes."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from sgl_runtime.errors import SglRuntimeError


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A piece of an answer.

    Attributes:
        text: What it adds.
        is_reasoning: Whether the model still thinks.
    """

    text: str
    is_reasoning: bool = False


@dataclass(kw_only=True)
class AnswerFacts:
    """What the server said of an answer: token counts, and why it ended."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str | None = None


@dataclass
class Conversation:
    """Talks to one server.

    Attributes:
        http: The server, with base address, key and time limit.
        model: Name of the model in requests.
        system: The message in front of all; empty for none.
        options: Fields of each request besides: sampling and the like.
        messages: What was said; questions and answers in turn.
        facts: Of the latest answer.
    """

    http: httpx.Client
    model: str
    system: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(default_factory=list)
    facts: AnswerFacts = field(default_factory=AnswerFacts)

    def ask(self, question: str) -> Generator[Piece, None, None]:
        """Add a question, and give the answer piece by piece.

        The answer is kept as far as it was read, also when the reader stops; a question that fails is taken back.

        Raises:
            SglRuntimeError: the server refuses, fails, or does not answer.
        """
        self.messages.append({"role": "user", "content": question})
        yield from self._answer()

    def again(self) -> Generator[Piece, None, None]:
        """Forget the latest answer, and give another.

        Raises:
            SglRuntimeError: nothing was asked yet, or as in `ask`.
        """
        if self.messages and self.messages[-1]["role"] == "assistant":
            self.messages.pop()
        if not self.messages:
            raise SglRuntimeError("nothing was asked yet")
        yield from self._answer()

    def forget(self) -> None:
        """Begin anew; the system message stays."""
        self.messages.clear()

    def _answer(self) -> Generator[Piece, None, None]:
        self.facts = AnswerFacts()
        said: list[str] = []
        try:
            for piece in self._pieces():
                if not piece.is_reasoning:
                    said.append(piece.text)
                yield piece
        except SglRuntimeError:
            if not said:
                self.messages.pop()
            raise
        finally:
            if said:
                self.messages.append({"role": "assistant", "content": "".join(said)})

    def _pieces(self) -> Generator[Piece, None, None]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        body = {
            "model": self.model,
            "messages": [*system, *self.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.options,
        }
        try:
            with self.http.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    response.read()
                    raise SglRuntimeError(_refusal(response))
                for line in response.iter_lines():
                    data = line.removeprefix("data:").strip()
                    if line.startswith("data:") and data != "[DONE]":
                        yield from self._read(msgspec.json.decode(data))
        except httpx.HTTPError as error:
            raise SglRuntimeError(f"no answer from {self.http.base_url}: {error or type(error).__name__}") from error

    def _read(self, chunk: dict[str, Any]) -> Generator[Piece, None, None]:
        if "error" in chunk:
            raise SglRuntimeError(str(chunk["error"].get("message", chunk["error"])))
        usage = chunk.get("usage")
        if usage:
            self.facts.prompt_tokens = usage["prompt_tokens"]
            self.facts.output_tokens = usage["completion_tokens"]
            self.facts.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if delta.get("reasoning_content"):
                yield Piece(text=delta["reasoning_content"], is_reasoning=True)
            if delta.get("content"):
                yield Piece(text=delta["content"])
            self.facts.finish_reason = choice.get("finish_reason") or self.facts.finish_reason


def _refusal(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answers with status {response.status_code}"
