"""Pieces of replies that the OpenAI paths share, and the choices of each."""

from typing import Any

from sgl_runtime.ipc.messages import TokenAlternatives
from sgl_runtime.server.chat.chat_reply import ChatChoice, ChatFinish, ChatUsage
from sgl_runtime.server.pending_reply import Update, token_bytes, token_text
from sgl_runtime.server.text_places import TextPlaces
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
        skips_special: Whether the text of outputs leaves special tokens out.
    """

    def __init__(
        self, vocabulary: Vocabulary, *, logprobs: bool, num_top: int, num_choices: int, skips_special: bool
    ) -> None:
        self._vocabulary = vocabulary
        self._wants_logprobs = logprobs
        self._num_top = num_top
        self._skipped_ids = vocabulary.special_ids if skips_special else frozenset()
        self._places = [TextPlaces(vocabulary, skipped_ids=self._skipped_ids) for _ in range(num_choices)]
        # Prompts that the next choice of an index begins with.
        self._prompts: dict[int, Update] = {}

    def echo(self, index: int, prompt: Update) -> None:
        """Begin a choice with its prompt."""
        self._prompts[index] = prompt

    def choice(self, index: int, update: Update) -> dict[str, Any]:
        """A whole choice, or what a chunk says of one."""
        prompt = self._prompts.pop(index, None)
        parts = [update] if prompt is None else [prompt, update]
        logprobs = None
        if self._wants_logprobs:
            offsets = [] if prompt is None else self._prompt_offsets(index, prompt)
            logprobs = self._logprobs(parts, offsets + self._places[index].take(update.ids))
        return {
            "index": index,
            "text": "".join(part.text for part in parts),
            "logprobs": logprobs,
            "finish_reason": None if update.finish is None else update.finish.type,
        }

    def _prompt_offsets(self, index: int, prompt: Update) -> list[int]:
        places = TextPlaces(self._vocabulary, skipped_ids=frozenset())
        offsets = places.take(prompt.ids)
        places.finish()
        num_characters = len(prompt.text)
        self._places[index] = TextPlaces(self._vocabulary, skipped_ids=self._skipped_ids, begin=num_characters)
        # Tokenizers may put something in front that the text does not have: a token, or white space.
        return [max(0, offset + num_characters - places.end) for offset in offsets]

    def _logprobs(self, parts: list[Update], offsets: list[int]) -> dict[str, Any]:
        tokens = [token_text(self._vocabulary, token_id) for part in parts for token_id in part.ids]
        logprobs = [logprob for part in parts for logprob in part.logprobs]
        top = None
        if self._num_top:
            chosen = zip(tokens, logprobs, [entry for part in parts for entry in part.alternatives], strict=True)
            # The token that came is among them even where it is not one of the likeliest.
            top = [None if entry is None else {**self._top(entry), token: logprob} for token, logprob, entry in chosen]
        return {"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets}

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
