"""ScriptedLogprobs: the log probability fields of a scripted reply."""

from collections.abc import Callable, Sequence
from typing import Any

from sgl.backends.scripted_tokenizer import ScriptedTokenizer


class ScriptedLogprobs:
    """Scores tokens by the script.

    Args:
        logprob: Log probability of a token's text behind a context.
        tokenizer: Ids to text.
    """

    def __init__(self, logprob: Callable[[str, str], float], tokenizer: ScriptedTokenizer) -> None:
        self._logprob = logprob
        self._tokenizer = tokenizer

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        return b"".join(map(self._tokenizer.token_bytes, ids)).decode(errors="replace")

    def fields(self, payload: dict[str, Any], prompt_ids: Sequence[int], output_ids: Sequence[int]) -> dict[str, Any]:
        """What a request asks for; the likeliest tokens are those among the tokens of prompt and output.

        Args:
            payload: The request.
            prompt_ids, output_ids: Its tokens so far.
        """
        if not payload.get("return_logprob"):
            return {}
        ids = (*prompt_ids, *output_ids)
        spans = {"output": range(len(prompt_ids), len(ids))}
        start = payload.get("logprob_start_len", -1)
        if start >= 0:
            spans["input"] = range(start, len(prompt_ids))
        num_top, probes = payload.get("top_logprobs_num", 0), payload.get("token_ids_logprob") or ()
        fields: dict[str, Any] = {}
        for side, places in spans.items():
            fields[f"{side}_token_logprobs"] = [self._entries(ids, place, [ids[place]])[0] for place in places]
            if num_top:
                fields[f"{side}_top_logprobs"] = [self._likeliest(ids, place, num_top) for place in places]
            if probes:
                fields[f"{side}_token_ids_logprobs"] = [
                    self._entries(ids, place, probes) if place else None for place in places
                ]
        return fields

    def _likeliest(self, ids: Sequence[int], place: int, count: int) -> list[list[Any]] | None:
        if place == 0:
            return None
        entries = self._entries(ids, place, sorted(set(ids)))
        return sorted(entries, key=lambda entry: -entry[0])[:count]

    def _entries(self, ids: Sequence[int], place: int, candidates: Sequence[int]) -> list[list[Any]]:
        context = self.decode(ids[:place])
        tokens = [self.decode([candidate]) for candidate in candidates]
        values = [self._logprob(context, token) if place else None for token in tokens]
        return [list(entry) for entry in zip(values, candidates, tokens, strict=True)]
