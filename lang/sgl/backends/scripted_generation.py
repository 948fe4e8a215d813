"""ScriptedGeneration: how an answer comes out of a scripted model token by token, with limits and stops."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sgl.backends.scripted_tokenizer import (
    EOS_ID,
    ScriptedTokenizer,
    complete_text,
    cut_at_stop,
    without_stop_beginning,
)


@dataclass(frozen=True)
class GenerationStep:
    """What a reply says after some tokens.

    Attributes:
        ids: All output ids.
        text: All text that may be shown.
        finish_reason: Set on the last step.
        num_text_ids: How many ids lie wholly inside the text.
        tail: The rest of the text behind them.
    """

    ids: list[int]
    text: str
    finish_reason: dict[str, Any] | None
    num_text_ids: int
    tail: str


def generation_steps(
    answer: str, sampling: dict[str, Any], tokenizer: ScriptedTokenizer, *, is_constrained: bool
) -> Iterator[GenerationStep]:
    """The steps of an answer, at least one; the last has a finish reason.

    Args:
        answer: What the model wants to say.
        sampling: The request's sampling_params.
        tokenizer: Cuts the answer into tokens.
        is_constrained: Whether the output ends by its grammar and not by an end-of-sequence token.
    """
    ids = tokenizer.encode(answer)
    if not is_constrained:
        ids.append(EOS_ID)
    stops = _as_list(sampling.get("stop"))
    stop_ids = [EOS_ID, *_as_list(sampling.get("stop_token_ids"))]
    limit = sampling.get("max_new_tokens")
    limit = len(ids) if limit is None else min(limit, len(ids))
    if limit == 0:
        yield _step([], b"", stops, {"type": "length", "length": 0}, tokenizer)
    data = b""
    for count in range(1, limit + 1):
        token = ids[count - 1]
        is_end = token in stop_ids
        data += b"" if is_end else tokenizer.token_bytes(token)
        _, matched = cut_at_stop(complete_text(data), stops)
        reason: dict[str, Any] | None = None
        if is_end:
            reason = {"type": "stop", "matched": token}
        elif matched is not None:
            reason = {"type": "stop", "matched": matched}
        elif count == len(ids):
            reason = {"type": "stop", "matched": None}
        elif count == limit:
            reason = {"type": "length", "length": count}
        yield _step(ids[:count], data, stops, reason, tokenizer)
        if reason is not None:
            return


def _step(
    ids: list[int],
    data: bytes,
    stops: Sequence[str],
    reason: dict[str, Any] | None,
    tokenizer: ScriptedTokenizer,
) -> GenerationStep:
    text, _ = cut_at_stop(complete_text(data), stops)
    if reason is None:
        text = without_stop_beginning(text, stops)
    shown = text.encode()
    num_text_ids, num_bytes = 0, 0
    for token in ids:
        size = len(tokenizer.token_bytes(token))
        if size == 0 or num_bytes + size > len(shown):
            break
        num_text_ids, num_bytes = num_text_ids + 1, num_bytes + size
    # Ids go on from whole characters only: a tail is text.
    while num_bytes > 0 and complete_text(shown[:num_bytes]).encode() != shown[:num_bytes]:
        num_text_ids -= 1
        num_bytes -= len(tokenizer.token_bytes(ids[num_text_ids]))
    return GenerationStep(list(ids), text, reason, num_text_ids, shown[num_bytes:].decode())


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
