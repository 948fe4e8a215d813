"""LogitRules: penalties, biases and the minimum length of one request."""

from collections import Counter
from collections.abc import Iterable

from sgl_runtime.sampling_params import SamplingParams


class LogitRules:
    """What one request does to logits before a token is drawn.

    Repetition divides positive and multiplies negative logits of every token of prompt and output; frequency (for each
    time) and presence (once) lower those of the output; a bias is added; while the output is shorter than
    min_new_tokens, tokens that would end it are out.

    Args:
        sampling: Settings of the request.
        prompt_ids: Its prompt.
        end_ids: Ids that end the output.
    """

    def __init__(self, sampling: SamplingParams, prompt_ids: Iterable[int], *, end_ids: frozenset[int]) -> None:
        self._sampling = sampling
        self._bias = dict(sampling.logit_bias)
        self._end_ids = end_ids.union(sampling.stop_token_ids)
        self._prompt_ids = set(prompt_ids) if sampling.repetition_penalty != 1.0 else set()
        self._counts: Counter[int] = Counter()

    def count(self, token_id: int) -> None:
        """Take note of a generated token."""
        self._counts[token_id] += 1

    def edits(self) -> dict[int, tuple[float, float]]:
        """For each token id that is touched, the repetition factor and what is added after it."""
        sampling = self._sampling
        repetition = sampling.repetition_penalty
        edits = dict.fromkeys(self._prompt_ids, (repetition, 0.0))
        for token_id, times in self._counts.items():
            lowered = sampling.frequency_penalty * times + sampling.presence_penalty
            edits[token_id] = (repetition, -lowered)
        for token_id, bias in self._bias.items():
            factor, added = edits.get(token_id, (1.0, 0.0))
            edits[token_id] = (factor, added + bias)
        if self._counts.total() < sampling.min_new_tokens:
            edits.update(dict.fromkeys(self._end_ids, (1.0, float("-inf"))))
        return edits


def logit_rules(sampling: SamplingParams, prompt_ids: Iterable[int], *, end_ids: frozenset[int]) -> LogitRules | None:
    """The rules of a request, None where its settings touch no logit."""
    return LogitRules(sampling, prompt_ids, end_ids=end_ids) if sampling.edits_logits else None
