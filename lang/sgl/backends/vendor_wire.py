"""The wire form of OpenAI's chat and completion endpoints, which many servers and vendors speak: requests and replies.

Only what differs from the API's defaults is sent: some models refuse settings even at their default value.
"""

import json
from typing import Any

from sgl.backends.base import Dialogue, Generation, GenRequest, Prompt
from sgl.constraints import Constraint
from sgl.errors import BackendError
from sgl.sampling import RUN_DEFAULTS, SamplingParams

# Settings of the language and their fields; those of EXTENSIONS are not OpenAI's, but many servers take them.
API_FIELDS = {
    "max_new_tokens": "max_tokens",
    "stop": "stop",
    "temperature": "temperature",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "logit_bias": "logit_bias",
    "seed": "seed",
    "return_logprob": "logprobs",
}
EXTENSIONS = {
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "min_new_tokens": "min_tokens",
    "stop_token_ids": "stop_token_ids",
    "ignore_eos": "ignore_eos",
}
CONSTRAINT_EXTENSIONS = ("regex", "json_schema")
# Ways to ask for the rest of an assistant message: a field of that message, or fields of the request.
PREFIX_EXTENSIONS = ("prefix", "continue_final_message")
_NEUTRAL = {name: value for name, value in RUN_DEFAULTS.given().items() if name != "max_new_tokens"}


def chat_fields(request: GenRequest, *, prefix_by: str | None = None) -> dict[str, Any]:
    """The body of a chat request, without the model.

    Args:
        request: What is asked.
        prefix_by: One of `PREFIX_EXTENSIONS` where the endpoint goes on inside an assistant message.

    Raises:
        BackendError: the state is no dialogue that ends where the assistant begins to speak.
    """
    dialogue = request.dialogue
    assert dialogue is not None, "a backend that takes messages gets them"
    _check_dialogue(dialogue, has_prefix=prefix_by is not None)
    fields = _settings(request.sampling, request.constraint, is_chat=True)
    fields["max_completion_tokens"] = fields.pop("max_tokens")
    messages = list(dialogue.messages)
    if dialogue.open_text.strip():
        begun: dict[str, Any] = {"role": "assistant", "content": dialogue.open_text}
        if prefix_by == "prefix":
            begun["prefix"] = True
        else:
            extra = {"continue_final_message": True, "add_generation_prompt": False}
            fields["extra_body"] = {**fields.get("extra_body", {}), **extra}
        messages.append(begun)
    return {"messages": messages, **fields}


def completion_fields(request: GenRequest) -> dict[str, Any]:
    """The body of a completion request, without the model."""
    fields = _settings(request.sampling, request.constraint, is_chat=False)
    if "logprobs" in fields:
        # The chosen tokens alone, none of the others that were likely.
        fields["logprobs"] = 0
    return {"prompt": request.prompt.pending, **fields}


def _check_dialogue(dialogue: Dialogue, *, has_prefix: bool) -> None:
    if dialogue.open_role != "assistant":
        where = "outside of roles" if dialogue.open_role is None else f"in role {dialogue.open_role!r}"
        raise BackendError(f"a chat model speaks in role 'assistant', and the gen stands {where}")
    if dialogue.has_open_media:
        raise BackendError("there is an image in the assistant's message before the gen: put it into a user message")
    if dialogue.open_text.strip() and not has_prefix:
        raise BackendError(
            f"the assistant's message begins with {dialogue.open_text[:40]!r} before the gen, and this chat endpoint "
            "cannot go on inside a message: let the gen be the first in it, or speculate "
            "(function(num_api_spec_tokens=...)) with a prompt that lets the model write the whole message"
        )
    if dialogue.has_loose_text:
        raise BackendError(
            "there is text outside of roles, or an image, which a chat endpoint does not take: put it into a role"
        )


def _settings(sampling: SamplingParams, constraint: Constraint | None, *, is_chat: bool) -> dict[str, Any]:
    """The fields of settings and constraint; what is not OpenAI's stands in `extra_body`."""
    fields: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in sampling.given().items():
        if name in _NEUTRAL and value == _NEUTRAL[name]:
            continue
        plain = list(value) if isinstance(value, tuple) else value
        if name == "logit_bias":
            plain = {str(token_id): bias for token_id, bias in value}
        if name in API_FIELDS:
            fields[API_FIELDS[name]] = plain
        else:
            extra[EXTENSIONS[name]] = plain
    if constraint is not None and constraint.kind == "regex":
        extra["regex"] = constraint.text
    elif constraint is not None:
        response_format = {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": json.loads(constraint.text), "strict": True},
        }
        # A field of the chat endpoint, an extension of the other.
        (fields if is_chat else extra)["response_format"] = response_format
    return {**fields, "extra_body": extra} if extra else fields


class ReplyReader:
    """Puts an output together from a reply or from the chunks of a stream.

    Args:
        request: What was asked.
        fields: What was sent.
    """

    def __init__(self, request: GenRequest, fields: dict[str, Any]) -> None:
        self._prompt = request.prompt
        self._text = ""
        self._reasoning = ""
        self._logprobs: list[list[Any]] = []
        self._finish_reason: str | None = None
        sent = {name: value for name, value in fields.items() if name not in ("messages", "prompt", "model")}
        self._meta: dict[str, Any] = {
            "finish_reason": None,
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "cached_tokens": 0,
            "sampling_params": sent,
        }

    def take(self, part: dict[str, Any]) -> bool:
        """Read a reply or a chunk; whether the text has grown."""
        self._meta.update({name: part[name] for name in ("id", "model") if part.get(name)})
        self._take_usage(part.get("usage"))
        size = len(self._text) + len(self._reasoning)
        for choice in part.get("choices") or ():
            message = choice.get("message") or choice.get("delta") or {}
            if message.get("refusal"):
                raise BackendError(f"the model refused: {message['refusal']}", code="refusal")
            self._text += choice.get("text") or message.get("content") or ""
            # Servers that tell thinking apart call it by either name.
            self._reasoning += message.get("reasoning_content") or message.get("reasoning") or ""
            self._logprobs += _logprobs(choice.get("logprobs"))
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
        return len(self._text) + len(self._reasoning) > size

    def beginning(self) -> Generation:
        """The output so far."""
        return Generation(text=self._text, meta=dict(self._meta), prompt=None, reasoning=self._reasoning)

    def whole(self) -> Generation:
        """The complete output.

        Raises:
            BackendError: it is not complete, or was withheld.
        """
        meta = dict(self._meta)
        if self._finish_reason == "length":
            meta["finish_reason"] = {"type": "length", "length": meta["completion_tokens"]}
        elif self._finish_reason in ("stop", "eos"):
            meta["finish_reason"] = {"type": "stop", "matched": None}
        elif self._finish_reason is None:
            raise BackendError("the reply ended before the output was complete")
        else:
            raise BackendError(f"the output ended by {self._finish_reason!r}", code=self._finish_reason)
        if self._logprobs:
            meta["output_token_logprobs"] = self._logprobs
        prompt = Prompt(pending=self._prompt.pending + self._text)
        return Generation(text=self._text, meta=meta, prompt=prompt, reasoning=self._reasoning)

    def _take_usage(self, usage: dict[str, Any] | None) -> None:
        if usage:
            details = usage.get("prompt_tokens_details") or {}
            self._meta["prompt_tokens"] = usage.get("prompt_tokens") or 0
            self._meta["completion_tokens"] = usage.get("completion_tokens") or 0
            self._meta["cached_tokens"] = details.get("cached_tokens") or 0


def _logprobs(logprobs: dict[str, Any] | None) -> list[list[Any]]:
    """Log probability, no id, and text of each token, from either endpoint's form."""
    if not logprobs:
        return []
    if logprobs.get("content"):
        return [[entry["logprob"], None, entry["token"]] for entry in logprobs["content"]]
    columns = zip(logprobs.get("token_logprobs") or (), logprobs.get("tokens") or (), strict=True)
    return [[logprob, None, token] for logprob, token in columns]
