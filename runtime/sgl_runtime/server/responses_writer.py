"""ResponseWriter: steps of the chat core to the events of /v1/responses, and to the response that they add up to."""

import time
from collections.abc import Callable
from typing import Any, Literal

from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.server.chat.chat_reply import ChatFinish, ChatStep, ChatUsage
from sgl_runtime.server.pending_reply import Update
from sgl_runtime.server.responses_logprobs import ItemLogprobs
from sgl_runtime.server.responses_output import (
    MESSAGE,
    REASONING,
    SUMMARY,
    CallOutput,
    Event,
    ItemStatus,
    OutputItem,
    TextOutput,
    TextShape,
)
from sgl_runtime.server.tool_parsers.events import CallArguments, CallBegin, ContentDelta, ReasoningDelta, ReplyEvent

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
TokenEntries = Callable[[Update], list[dict[str, Any]]]


class ResponseWriter:
    """Writes one response; the whole one and the stream come from the same calls, so that they agree.

    Args:
        head: Fields that do not change: what the response repeats of the request, its id, its model.
        token_entries: Log probabilities of new tokens; None where none are wanted.
        summarizes: Whether thinking is shown as its summary.

    Attributes:
        status: What has become of it.
    """

    def __init__(self, head: dict[str, Any], *, token_entries: TokenEntries | None, summarizes: bool) -> None:
        self.status: ResponseStatus = "queued"
        self._head = head
        self._token_entries = token_entries
        self._logprobs = ItemLogprobs()
        self._summarizes = summarizes
        self._num_events = 0
        self._closed: list[dict[str, Any]] = []
        self._open: OutputItem | None = None
        self._usage: ChatUsage | None = None
        self._error: SglRuntimeError | None = None
        self._completed_at: int | None = None

    @property
    def response_id(self) -> str:
        """Id of the response."""
        return str(self._head["id"])

    def begin(self) -> list[Event]:
        """The events that begin a stream."""
        created = {"type": "response.created", "response": self.response()}
        self.status = "in_progress"
        return self._numbered([created, {"type": "response.in_progress", "response": self.response()}])

    def take(self, step: ChatStep) -> list[Event]:
        """The events of the next step; the last step brings the event that ends the stream."""
        self._usage = step.usage
        if self._token_entries is not None:
            self._logprobs.add(self._token_entries(step.tokens))
        events: list[Event] = []
        for event in step.events:
            events += self._apply(event)
        if step.finish is not None:
            events += self._finish(step.finish)
        return self._numbered(events)

    def fail(self, error: SglRuntimeError) -> list[Event]:
        """End the response with an error; the events that end the stream."""
        self._error = error
        events = self._close("incomplete")
        return self._numbered([*events, self._ended("failed")])

    def cancel(self) -> None:
        """End the response because it was asked for."""
        self._close("incomplete")
        self._ended("cancelled")

    def response(self) -> dict[str, Any]:
        """The response so far."""
        is_cut = self.status == "incomplete"
        error = self._error
        return {
            **self._head,
            "status": self.status,
            "completed_at": self._completed_at if self.status == "completed" else None,
            "error": None if error is None else {"code": _error_code(error), "message": error.message},
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": self.output(),
            "usage": None if self._usage is None else _usage_object(self._usage),
        }

    def output(self) -> list[dict[str, Any]]:
        """The items so far."""
        return [*self._closed, *([] if self._open is None else [self._open.item("in_progress")])]

    def _apply(self, event: ReplyEvent) -> list[Event]:
        match event:
            case ReasoningDelta(text):
                return self._add_text(text, SUMMARY if self._summarizes else REASONING, "rs")
            case ContentDelta(text):
                return self._add_text(text, MESSAGE, "msg")
            case CallBegin(_, call_id, name):
                return self._begin(CallOutput(self._new_id("fc"), call_id=call_id, name=name))
            case CallArguments(_, text):
                return self._add(text)

    def _finish(self, finish: ChatFinish) -> list[Event]:
        events: list[Event] = []
        if self._open is None and not self._closed:
            events += self._begin(TextOutput(self._new_id("msg"), MESSAGE))
        is_cut = finish.reason in ("length", "abort")
        events += self._close("incomplete" if is_cut else "completed", is_last=True)
        if finish.reason == "abort":
            self._error = SglRuntimeError("the request was aborted")
            return [*events, self._ended("failed")]
        return [*events, self._ended("incomplete" if finish.reason == "length" else "completed")]

    def _add_text(self, text: str, shape: TextShape, prefix: str) -> list[Event]:
        is_new = self._open is None or self._open.kind != shape.kind
        events = self._begin(TextOutput(self._new_id(prefix), shape)) if is_new else []
        return events + self._add(text)

    def _begin(self, item: OutputItem) -> list[Event]:
        events = self._close("completed")
        self._open = item
        return events + self._placed(item.begin())

    def _add(self, text: str) -> list[Event]:
        assert self._open is not None, "text belongs to an item"
        logprobs: list[dict[str, Any]] = []
        if self._token_entries is not None and self._open.kind == "message" and not self._closed:
            logprobs = self._logprobs.of_beginning(text)
        return self._placed(self._open.add(text, logprobs))

    def _close(self, status: ItemStatus, *, is_last: bool = False) -> list[Event]:
        item = self._open
        if item is None:
            return []
        late = [] if self._token_entries is None else self._late_logprobs(item, is_last=is_last)
        events = self._placed([*(item.add("", late) if late else []), *item.end(status)])
        self._open = None
        self._closed.append(item.item(status))
        return events

    def _late_logprobs(self, item: OutputItem, *, is_last: bool) -> list[dict[str, Any]]:
        """Log probabilities that an item gets when it is whole."""
        if item.kind != "message":
            self._logprobs.pass_over(item.text)
            return []
        if self._closed:
            return self._logprobs.of_message(item.text, is_last=is_last)
        # The token that ended the answer has no text.
        return self._logprobs.rest() if is_last else []

    def _ended(self, status: ResponseStatus) -> Event:
        self.status = status
        self._completed_at = int(time.time())
        return {"type": f"response.{status}", "response": self.response()}

    def _placed(self, events: list[Event]) -> list[Event]:
        return [{**event, "output_index": len(self._closed)} for event in events]

    def _numbered(self, events: list[Event]) -> list[Event]:
        begin, self._num_events = self._num_events, self._num_events + len(events)
        return [{**event, "sequence_number": number} for number, event in enumerate(events, begin)]

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}_{self.response_id.removeprefix('resp_')}_{len(self._closed) + (self._open is not None)}"


def _error_code(error: SglRuntimeError) -> str:
    return "invalid_prompt" if error.status < 500 else "server_error"


def _usage_object(usage: ChatUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        # Keeping tokens in the cache costs nothing that would have to be counted.
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
