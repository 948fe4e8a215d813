"""ScriptedGeneration: how an answer comes out of a scripted model token by token, with limits and stops."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sgl.backends.scripted_tokenizer import EOS_ID, ScriptedTokenizer, complete_text
from sgl.stops import cut_at_stop, without_stop_beginning


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


@dataclass(frozen=True)
class RegexMatch:
    """Where a stop regex ends an answer.

    Attributes:
        count: With which token, counted from 1, the match is there.
        begin: Where it begins in the text.
        text: What matched.
        regex: The regex.
    """

    count: int
    begin: int
    text: str
    regex: str

    def is_before(self, text: str, stop: str | None) -> bool:
        """Whether it begins before a stop string behind `text`, or there and is longer; or there is no stop string."""
        return stop is None or (self.begin, -len(self.text)) < (len(text), -len(stop))


def first_match(
    ids: Sequence[int], stop_ids: Sequence[int], regexes: Sequence[str], tokenizer: ScriptedTokenizer
) -> RegexMatch | None:
    """The first match in an answer that comes token by token; of several the one that begins first, then longest."""
    data = b""
    for count, token in enumerate(ids, start=1):
        if token in stop_ids:
            return None
        data += tokenizer.token_bytes(token)
        text = complete_text(data)
        found = []
        for regex in regexes:
            match = re.search(regex, text)
            if match is not None:
                begin = match.start()
                end = next(end for end in range(len(text), begin, -1) if re.fullmatch(regex, text[begin:end]))
                found.append((begin, -end, regex))
        if found:
            begin, minus_end, regex = min(found)
            return RegexMatch(count, begin, text[begin:-minus_end], regex)
    return None


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
    regexes = _as_list(sampling.get("stop_regex"))
    found = first_match(ids[:limit], stop_ids, regexes, tokenizer) if regexes else None
    data = b""
    for count in range(1, limit + 1):
        token = ids[count - 1]
        is_end = token in stop_ids
        data += b"" if is_end else tokenizer.token_bytes(token)
        before, matched = cut_at_stop(complete_text(data), stops)
        reason: dict[str, Any] | None = None
        if is_end:
            reason = {"type": "stop", "matched": token}
        elif found is not None and count == found.count and found.is_before(before, matched):
            reason = {"type": "stop", "matched": found.text, "regex": found.regex}
        elif matched is not None:
            reason = {"type": "stop", "matched": matched}
        elif count == len(ids):
            reason = {"type": "stop", "matched": None}
        elif count == limit:
            reason = {"type": "length", "length": count}
        # The script knows what comes: nothing of a match is shown before it is whole.
        cut = found.begin if found is not None and (reason is None or count == found.count) else None
        yield _step(ids[:count], data, stops, reason, tokenizer, cut=cut)
        if reason is not None:
            return


def _step(
    ids: list[int],
    data: bytes,
    stops: Sequence[str],
    reason: dict[str, Any] | None,
    tokenizer: ScriptedTokenizer,
    *,
    cut: int | None = None,
) -> GenerationStep:
    text, _ = cut_at_stop(complete_text(data), stops)
    if reason is None:
        text = without_stop_beginning(text, stops)
    text = text[:cut]
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
