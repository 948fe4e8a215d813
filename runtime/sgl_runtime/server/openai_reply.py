"""Pieces of replies that the OpenAI paths share, and the choices of each."""

from typing import Any

from sgl_runtime.ipc.messages import TokenAlternatives
from sgl_runtime.server.chat.chat_reply import ChatChoice, ChatFinish, ChatUsage
from sgl_runtime.server.pending_reply import Update, token_bytes, token_text
from sgl_runtime.server.tool_parsers.events import CallArguments, CallBegin, ContentDelta, ReasoningDelta, ReplyEvent
from sgl_runtime.tokenizer.vocabulary import Vocabulary
from sgl_runtime.version import distribution_version


def reply_head(*, reply_id: str, object_name: str, created: int, model: str) -> dict[str, Any]:
    """The fields that begin every reply and every chunk."""
    return {
        "id": reply_id,
        "object": object_name,
        "created": created,
        "model": model,
        "system_fingerprint": f"sgl-{distribution_version()}",
    }


def usage_object(usage: ChatUsage) -> dict[str, Any]:
    """Token counts."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


class CompletionShape:
    """Choices of /v1/completions.

    Args:
        vocabulary: For the text of log probabilities.
        logprobs: Whether they are wanted.
        num_top: How many of the likeliest tokens are wanted at each place.
        num_choices: Choices of the reply.
    """

    def __init__(self, vocabulary: Vocabulary, *, logprobs: bool, num_top: int, num_choices: int) -> None:
        self._vocabulary = vocabulary
        self._wants_logprobs = logprobs
        self._num_top = num_top
        # Where the next token's text begins, for each choice.
        self._offsets = [0] * num_choices

    def choice(self, index: int, update: Update) -> dict[str, Any]:
        """A whole choice, or what a chunk says of one."""
        return {
            "index": index,
            "text": update.text,
            "logprobs": self._logprobs(index, update) if self._wants_logprobs else None,
            "finish_reason": None if update.finish is None else update.finish.type,
        }

    def _logprobs(self, index: int, update: Update) -> dict[str, Any]:
        tokens = [token_text(self._vocabulary, token_id) for token_id in update.ids]
        offsets = []
        for token in tokens:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(token)
        top = None
        if self._num_top:
            chosen = zip(tokens, update.logprobs, update.alternatives, strict=True)
            # The token that came is among them even where it is not one of the likeliest.
            top = [None if entry is None else {**self._top(entry), token: logprob} for token, logprob, entry in chosen]
        return {"tokens": tokens, "token_logprobs": update.logprobs, "top_logprobs": top, "text_offset": offsets}

    def _top(self, entry: TokenAlternatives) -> dict[str, float | None]:
        texts: dict[str, float | None] = {}
        for logprob, token_id in entry.top:
            # Tokens of which only a part of a character shows look alike: the likeliest stands for all.
            texts.setdefault(token_text(self._vocabulary, token_id), logprob)
        return texts


class ChatShape:
    """Choices of /v1/chat/completions.

    Args:
        vocabulary: For the text of log probabilities.
        logprobs: Whether they are wanted.
        num_top: How many of the likeliest tokens are wanted at each place.
    """

    def __init__(self, vocabulary: Vocabulary, *, logprobs: bool, num_top: int) -> None:
        self._vocabulary = vocabulary
        self._wants_logprobs = logprobs
        self._num_top = num_top

    def choice(self, choice: ChatChoice) -> dict[str, Any]:
        """A whole choice."""
        has_other = bool(choice.calls or choice.reasoning)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if has_other and not choice.content else choice.content,
            "refusal": None,
        }
        if choice.reasoning:
            message["reasoning_content"] = choice.reasoning
        if choice.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in choice.calls
            ]
        rest = self._rest(choice.tokens, choice.finish)
        return {"index": choice.index, "message": message, **rest}

    def delta(
        self, index: int, event: ReplyEvent | None, *, is_first: bool, tokens: list[Update], finish: ChatFinish | None
    ) -> dict[str, Any]:
        """What a chunk says of a choice.

        Args:
            index: The choice.
            event: What is new; None for nothing.
            is_first: Whether it is the choice's first chunk.
            tokens: Tokens whose log probabilities the chunk has.
            finish: How the choice ended, with its last chunk.
        """
        delta: dict[str, Any] = {"role": "assistant"} if is_first else {}
        match event:
            case ReasoningDelta(text):
                delta["reasoning_content"] = text
            case ContentDelta(text):
                delta["content"] = text
            case CallBegin(number, call_id, name):
                function = {"name": name, "arguments": ""}
                delta["tool_calls"] = [{"index": number, "id": call_id, "type": "function", "function": function}]
            case CallArguments(number, text):
                delta["tool_calls"] = [{"index": number, "function": {"arguments": text}}]
            case None if is_first:
                delta["content"] = ""
        return {"index": index, "delta": delta, **self._rest(tokens, finish)}

    def token_entries(self, update: Update) -> list[dict[str, Any]]:
        """Log probabilities of the tokens of an update."""
        entries = []
        for place, (token_id, logprob) in enumerate(zip(update.ids, update.logprobs, strict=True)):
            others = update.alternatives[place] if self._num_top else None
            shown = [self._entry(other_id, value) for value, other_id in (others.top if others else ())]
            entries.append({**self._entry(token_id, logprob), "top_logprobs": shown})
        return entries

    def _rest(self, tokens: list[Update], finish: ChatFinish | None) -> dict[str, Any]:
        entries = [entry for update in tokens for entry in self.token_entries(update)] if self._wants_logprobs else []
        return {
            "logprobs": {"content": entries, "refusal": None} if self._wants_logprobs else None,
            "finish_reason": None if finish is None else finish.reason,
        }

    def _entry(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        return {
            "token": token_text(self._vocabulary, token_id),
            "logprob": logprob,
            "bytes": list(token_bytes(self._vocabulary, token_id)),
        }
