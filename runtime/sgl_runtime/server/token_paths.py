"""Paths between text and tokens."""

from collections.abc import Mapping
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.field_checks import checked_boolean, checked_fields, checked_text, token_ids
from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.tokenizer_manager import TokenizerManager

MAX_TEXTS = 16_384
"""Texts or lists of ids in one request."""

MAX_IDS = 1_000_000
"""Token ids in one request."""


class TokenPaths:
    """`/tokenize` and `/detokenize`, and what OpenAI-like clients call the same.

    Args:
        manager: Has the tokenizer.
    """

    def __init__(self, manager: TokenizerManager) -> None:
        self._manager = manager

    def paths(self) -> Mapping[str, NativePath]:
        """Each path, and how it is answered."""
        detokenize = NativePath(answer=self._detokenize)
        return {
            "/tokenize": NativePath(answer=self._tokenize),
            "/v1/tokenize": NativePath(answer=self._tokenize_prompt),
            "/detokenize": detokenize,
            "/v1/detokenize": detokenize,
        }

    async def _tokenize(self, payload: Any) -> dict[str, Any]:
        """Token ids of a text, or of several."""
        fields = checked_fields(payload, ("text", "add_special_tokens"))
        add_special_tokens = checked_boolean("add_special_tokens", fields.get("add_special_tokens", False))
        return await self._tokens("text", fields.get("text"), add_special_tokens=add_special_tokens)

    async def _tokenize_prompt(self, payload: Any) -> dict[str, Any]:
        """Token ids of a prompt, or of several."""
        fields = checked_fields(payload, ("model", "prompt", "add_special_tokens"))
        add_special_tokens = checked_boolean("add_special_tokens", fields.get("add_special_tokens", True))
        reply = await self._tokens("prompt", fields.get("prompt"), add_special_tokens=add_special_tokens)
        return {**reply, "max_model_len": self._manager.model_info.context_length}

    async def _detokenize(self, payload: Any) -> dict[str, Any]:
        """The text of token ids, or several texts."""
        fields = checked_fields(payload, ("model", "tokens", "skip_special_tokens"))
        skipped = checked_boolean("skip_special_tokens", fields.get("skip_special_tokens", True))
        tokens = fields.get("tokens")
        if isinstance(tokens, list) and tokens and isinstance(tokens[0], list):
            _check_count("tokens", len(tokens), MAX_TEXTS, "lists")
            _check_count("tokens", sum(len(item) for item in tokens if isinstance(item, list)), MAX_IDS, "token ids")
            lists = [self._checked_ids(f"tokens[{index}]", item) for index, item in enumerate(tokens)]
            return {"text": [self._manager.tokenizer.decode(ids, skip_special_tokens=skipped) for ids in lists]}
        ids = self._checked_ids("tokens", tokens)
        return {"text": self._manager.tokenizer.decode(ids, skip_special_tokens=skipped)}

    async def _tokens(self, name: str, value: Any, *, add_special_tokens: bool) -> dict[str, Any]:
        if not isinstance(value, list):
            tokens = await self._encode(checked_text(name, value), add_special_tokens=add_special_tokens)
            return {"tokens": tokens, "count": len(tokens)}
        _check_count(name, len(value), MAX_TEXTS, "texts")
        texts = [checked_text(f"{name}[{index}]", item) for index, item in enumerate(value)]
        lists = await self._encode_all(texts, add_special_tokens=add_special_tokens)
        return {"tokens": lists, "count": [len(tokens) for tokens in lists]}

    async def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        if add_special_tokens and not self._manager.model_info.is_generation:
            return (await self._manager.texts.encode_whole(text)).ids
        return await self._manager.texts.encode(text, add_bos=add_special_tokens)

    async def _encode_all(self, texts: list[str], *, add_special_tokens: bool) -> list[list[int]]:
        if add_special_tokens and not self._manager.model_info.is_generation:
            return [(await self._manager.texts.encode_whole(text)).ids for text in texts]
        return await self._manager.texts.encode_all(texts, add_bos=add_special_tokens)

    def _checked_ids(self, name: str, value: Any) -> list[int]:
        ids, size = token_ids(name, value), self._manager.model_info.vocab_size
        _check_count(name, len(ids), MAX_IDS, "token ids")
        for position, token_id in enumerate(ids):
            if not 0 <= token_id < size:
                raise reject(f"{name}[{position}]", token_id, f"from 0 to {size - 1}")
        return ids


def _check_count(name: str, count: int, most: int, what: str) -> None:
    if count > most:
        raise InvalidRequestError(f"{name} holds {count} {what}; at most {most} are taken", param=name)
