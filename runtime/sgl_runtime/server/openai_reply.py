"""The replies of /v1/completions and /v1/chat/completions: one shape for each path."""

from collections.abc import Sequence
from typing import Any, Protocol

from sgl_runtime.ipc.messages import TokenAlternatives
from sgl_runtime.server.openai_request import OpenAIRequest
from sgl_runtime.server.pending_reply import PendingReply, Update, token_bytes, token_text
from sgl_runtime.tokenizer.vocabulary import Vocabulary


class ReplyShape(Protocol):
    """How one path shows a reply.

    Attributes:
        id_prefix: Begins the reply's id.
        object_name, chunk_name: `object` of a whole reply and of a chunk of a stream.
    """

    id_prefix: str
    object_name: str
    chunk_name: str

    def choice(self, index: int, update: Update) -> dict[str, Any]:
        """A whole choice; `update` holds all of it."""

    def delta(self, index: int, update: Update, *, is_first: bool) -> dict[str, Any]:
        """What a chunk says of a choice."""


class CompletionShape:
    """Replies of /v1/completions.

    Args:
        vocabulary: For the text of log probabilities.
        request: Says which log probabilities are wanted.
    """

    id_prefix = "cmpl-"
    object_name = "text_completion"
    chunk_name = "text_completion"

    def __init__(self, vocabulary: Vocabulary, request: OpenAIRequest) -> None:
        self._vocabulary = vocabulary
        self._request = request
        # Where the next token's text begins, for each choice.
        self._offsets = [0] * len(request.requests)

    def choice(self, index: int, update: Update) -> dict[str, Any]:
        """A whole choice; `update` holds all of it."""
        return {
            "index": index,
            "text": update.text,
            "logprobs": self._logprobs(index, update) if self._request.logprobs else None,
            "finish_reason": None if update.finish is None else update.finish.type,
        }

    def delta(self, index: int, update: Update, *, is_first: bool) -> dict[str, Any]:
        """What a chunk says of a choice: here the same as a whole one."""
        return self.choice(index, update)

    def _logprobs(self, index: int, update: Update) -> dict[str, Any]:
        tokens = [token_text(self._vocabulary, token_id) for token_id in update.ids]
        offsets = []
        for token in tokens:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(token)
        top = None
        if self._request.num_top_logprobs:
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
    """Replies of /v1/chat/completions.

    Args:
        vocabulary: For the text of log probabilities.
        request: Says which log probabilities are wanted.
    """

    id_prefix = "chatcmpl-"
    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def __init__(self, vocabulary: Vocabulary, request: OpenAIRequest) -> None:
        self._vocabulary = vocabulary
        self._request = request

    def choice(self, index: int, update: Update) -> dict[str, Any]:
        """A whole choice; `update` holds all of it."""
        message = {"role": "assistant", "content": update.text, "refusal": None}
        return {"index": index, "message": message, **self._rest(update)}

    def delta(self, index: int, update: Update, *, is_first: bool) -> dict[str, Any]:
        """What a chunk says of a choice."""
        delta = {"role": "assistant", "content": update.text} if is_first else {"content": update.text}
        return {"index": index, "delta": delta, **self._rest(update)}

    def _rest(self, update: Update) -> dict[str, Any]:
        return {
            "logprobs": {"content": self._logprobs(update), "refusal": None} if self._request.logprobs else None,
            "finish_reason": None if update.finish is None else update.finish.type,
        }

    def _logprobs(self, update: Update) -> list[dict[str, Any]]:
        entries = []
        for place, (token_id, logprob) in enumerate(zip(update.ids, update.logprobs, strict=True)):
            others = update.alternatives[place] if self._request.num_top_logprobs else None
            shown = [self._entry(other_id, value) for value, other_id in (others.top if others else ())]
            entries.append({**self._entry(token_id, logprob), "top_logprobs": shown})
        return entries

    def _entry(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        return {
            "token": token_text(self._vocabulary, token_id),
            "logprob": logprob,
            "bytes": list(token_bytes(self._vocabulary, token_id)),
        }


def usage(pendings: Sequence[PendingReply]) -> dict[str, Any]:
    """Token counts over all choices; a prompt counts once, however many choices it has."""
    metas = [pending.meta_info() for pending in pendings]
    prompts = [meta for pending, meta in zip(pendings, metas, strict=True) if pending.request.sample == 0]
    prompt = sum(meta["prompt_tokens"] for meta in prompts)
    completion = sum(meta["completion_tokens"] for meta in metas)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(meta["cached_tokens"] for meta in prompts)},
    }
