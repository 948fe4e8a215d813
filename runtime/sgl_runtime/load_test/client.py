"""One request of a load test, and the times at which its answer came."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
import msgspec

from sgl_runtime.load_test.workload import LoadRequest

Backend = Literal["completions", "chat", "generate"]

_DONE = b"[DONE]"


@dataclass(kw_only=True)
class Outcome:
    """What became of a request; times are `time.perf_counter()`.

    Attributes:
        sent: When it was sent.
        arrivals: When each event with text came.
        ended: When the answer was complete.
        prompt_tokens, output_tokens, cached_tokens: As the server counted them.
        error: Why there was no whole answer; None if there was.
    """

    sent: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    ended: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    error: str | None = None


class LoadClient:
    """Sends requests to one server.

    Args:
        http: Where they go, with base address, key and time limit.
        backend: Which API is used.
        model: Name of the model in bodies.
        streams: Whether answers are streamed.
        extra: Fields of every body besides.
    """

    def __init__(
        self, http: httpx.AsyncClient, *, backend: Backend, model: str, streams: bool, extra: dict[str, Any]
    ) -> None:
        self._http = http
        self._backend = backend
        self._model = model
        self._streams = streams
        self._extra = extra
        self._path = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "generate": "/generate"}[
            backend
        ]

    async def run(self, request: LoadRequest) -> Outcome:
        """Send a request and read its answer; what goes wrong is in the outcome."""
        outcome = Outcome(sent=time.perf_counter())
        try:
            if self._streams:
                await self._stream(request, outcome)
            else:
                response = await self._http.post(self._path, content=self._body(request))
                if response.status_code == 200:
                    self._count(msgspec.json.decode(response.content), outcome)
                else:
                    outcome.error = f"status {response.status_code}: {response.text[:200]}"
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            outcome.error = f"{type(error).__name__}: {error}"
        outcome.ended = time.perf_counter()
        if outcome.error is None and not outcome.output_tokens:
            outcome.error = "the answer has no tokens"
        return outcome

    async def _stream(self, request: LoadRequest, outcome: Outcome) -> None:
        async with self._http.stream("POST", self._path, content=self._body(request)) as response:
            if response.status_code != 200:
                text = (await response.aread()).decode(errors="replace")
                outcome.error = f"status {response.status_code}: {text[:200]}"
                return
            last = None
            async for data in _events(response):
                if data == _DONE:
                    break
                now, reply = time.perf_counter(), msgspec.json.decode(data)
                if "error" in reply:
                    outcome.error = str(reply["error"])[:200]
                    return
                if self._has_text(reply, last):
                    outcome.arrivals.append(now)
                last = reply
                self._count(reply, outcome)

    def _has_text(self, reply: dict[str, Any], last: dict[str, Any] | None) -> bool:
        if self._backend == "generate":
            num_before = 0 if last is None else last["meta_info"]["completion_tokens"]
            return bool(reply["meta_info"]["completion_tokens"] > num_before)
        return any(
            choice.get("text") or any(choice.get("delta", {}).get(name) for name in ("content", "reasoning_content"))
            for choice in reply.get("choices", ())
        )

    def _count(self, reply: dict[str, Any], outcome: Outcome) -> None:
        if self._backend == "generate":
            counts = reply["meta_info"]
            cached = counts["cached_tokens"]
        else:
            counts = reply.get("usage")
            if not counts:
                return
            cached = (counts.get("prompt_tokens_details") or {}).get("cached_tokens")
        outcome.prompt_tokens = counts["prompt_tokens"]
        outcome.output_tokens = counts["completion_tokens"]
        outcome.cached_tokens = cached or 0

    def _body(self, request: LoadRequest) -> bytes:
        body: dict[str, Any]
        if self._backend == "generate":
            prompt = "text" if isinstance(request.prompt, str) else "input_ids"
            sampling = {**request.extra, "max_new_tokens": request.max_tokens, **self._extra.get("sampling_params", {})}
            body = {**self._extra, prompt: request.prompt, "sampling_params": sampling, "stream": self._streams}
            return msgspec.json.encode(body)
        body = {"model": self._model, "max_tokens": request.max_tokens, **request.extra, **self._extra}
        if self._backend == "chat":
            is_text = isinstance(request.prompt, str)
            body["messages"] = [{"role": "user", "content": request.prompt}] if is_text else request.prompt
        else:
            body["prompt"] = request.prompt
        if self._streams:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return msgspec.json.encode(body)


async def _events(response: httpx.Response) -> AsyncIterator[bytes]:
    """The data of each server-sent event."""
    rest = b""
    async for chunk in response.aiter_raw():
        *events, rest = (rest + chunk).split(b"\n\n")
        for event in events:
            for line in event.splitlines():
                if line.startswith(b"data:"):
                    yield line[5:].strip()
