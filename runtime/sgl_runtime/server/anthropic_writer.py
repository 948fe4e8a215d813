"""AnthropicWriter: steps of the chat core to the events of /v1/messages, and to the message that they add up to."""

from typing import Any

from sgl_runtime.server.chat.chat_reply import ChatFinish, ChatStep, ChatUsage
from sgl_runtime.server.cut_json import read_cut_object
from sgl_runtime.server.tool_parsers.events import CallArguments, CallBegin, ContentDelta, ReasoningDelta, ReplyEvent

Event = dict[str, Any]

# Field of a block that text is appended to, and the delta that brings it.
_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


class AnthropicWriter:
    """Writes one message; the whole one and the stream come from the same calls, so that they agree.

    Args:
        message_id: Its id.
        model: Name of the served model.
        stop_sequences: Texts that the client wants the output to end at.
        max_tokens: The client's limit.
        shows_thinking: Whether there are blocks of thinking.
    """

    def __init__(
        self,
        message_id: str,
        *,
        model: str,
        stop_sequences: tuple[str, ...],
        max_tokens: int | None,
        shows_thinking: bool,
    ) -> None:
        self._head = {"id": message_id, "type": "message", "role": "assistant", "model": model}
        self._stop_sequences = stop_sequences
        self._max_tokens = max_tokens
        self._shows_thinking = shows_thinking
        self._blocks: list[dict[str, Any]] = []
        # Texts of the last block.
        self._texts: list[str] = []
        self._is_open = False
        self._usage: ChatUsage | None = None
        self._stop: dict[str, Any] = {"stop_reason": None, "stop_sequence": None}

    def begin(self, usage: ChatUsage) -> list[Event]:
        """The event that begins a stream.

        Args:
            usage: Counts of the prompt.
        """
        message = {**self._head, "content": [], **self._stop, "usage": {**_usage_object(usage), "output_tokens": 0}}
        return [{"type": "message_start", "message": message}, {"type": "ping"}]

    def take(self, step: ChatStep) -> list[Event]:
        """The events of the next step; the last step brings those that end the stream."""
        self._usage = step.usage
        events: list[Event] = []
        for event in step.events:
            events += self._apply(event)
        if step.finish is not None:
            events += self._close()
            self._stop = self._stop_of(step.finish, step.usage)
            events.append({"type": "message_delta", "delta": self._stop, "usage": _usage_object(step.usage)})
            events.append({"type": "message_stop"})
        return events

    def message(self) -> dict[str, Any]:
        """The message, when it has ended."""
        assert self._usage is not None, "a message ends with a step"
        return {**self._head, "content": list(self._blocks), **self._stop, "usage": _usage_object(self._usage)}

    def _apply(self, event: ReplyEvent) -> list[Event]:
        match event:
            case ReasoningDelta(text):
                if not self._shows_thinking:
                    return []
                return self._append("thinking", text, {"thinking": "", "signature": ""})
            case ContentDelta(text):
                return self._append("text", text, {"text": ""})
            case CallBegin(_, call_id, name):
                tool_id = "toolu_" + call_id.removeprefix("call_")
                return self._begin("tool_use", {"id": tool_id, "name": name, "input": {}})
            case CallArguments(_, text):
                return self._append("tool_use", text, {})

    def _append(self, kind: str, text: str, empty: dict[str, Any]) -> list[Event]:
        is_new = not self._is_open or self._blocks[-1]["type"] != kind
        events = self._begin(kind, empty) if is_new else []
        self._texts.append(text)
        delta, field = _DELTAS[kind]
        content = {"type": delta, field: text}
        return [*events, {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": content}]

    def _begin(self, kind: str, empty: dict[str, Any]) -> list[Event]:
        events = self._close()
        block = {"type": kind, **empty}
        self._blocks.append(block)
        self._is_open = True
        return [*events, {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": {**block}}]

    def _close(self) -> list[Event]:
        if not self._is_open:
            return []
        block, text = self._blocks[-1], "".join(self._texts)
        if block["type"] == "tool_use":
            block["input"] = read_cut_object(text)
        else:
            block[block["type"]] = text
        self._texts = []
        self._is_open = False
        return [{"type": "content_block_stop", "index": len(self._blocks) - 1}]

    def _stop_of(self, finish: ChatFinish, usage: ChatUsage) -> dict[str, Any]:
        reason, sequence = "end_turn", None
        if finish.reason == "length":
            is_asked = self._max_tokens is not None and usage.completion_tokens >= self._max_tokens
            reason = "max_tokens" if is_asked else "model_context_window_exceeded"
        elif finish.reason == "tool_calls":
            reason = "tool_use"
        elif finish.reason == "stop" and finish.matched in self._stop_sequences:
            reason, sequence = "stop_sequence", finish.matched
        return {"stop_reason": reason, "stop_sequence": sequence}


def _usage_object(usage: ChatUsage) -> dict[str, Any]:
    return {
        # Tokens from the cache are counted apart from the others.
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }
