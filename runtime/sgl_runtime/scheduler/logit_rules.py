"""LogitRules: penalties, biases and the minimum length of one request."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.sampling_params import SamplingParams


class TokenEdits(NamedTuple):
    """What one request does to logits, all of shape (K,); see `LogitEdits`.  Views, which the next token changes."""

    token_ids: NDArray[np.int64]
    repetition: NDArray[np.float32]
    added: NDArray[np.float64]


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
        self._end_ids = np.array(sorted(end_ids.union(sampling.stop_token_ids)), dtype=np.int64)
        self._num_counted = 0
        # Where each token that is touched stands in the arrays, of which the first len(_places) entries count.
        self._places: dict[int, int] = {}
        self._came: set[int] = set()
        self._ids = np.empty(64, dtype=np.int64)
        self._factors = np.empty(64, dtype=np.float32)
        self._added = np.empty(64, dtype=np.float64)
        if sampling.repetition_penalty != 1.0:
            for token_id in set(prompt_ids):
                # The place first: a new one may bring new arrays.
                place = self._place(token_id)
                self._factors[place] = sampling.repetition_penalty
        for token_id, bias in sampling.logit_bias:
            place = self._place(token_id)
            self._added[place] += bias

    def count(self, token_id: int) -> None:
        """Take note of a generated token."""
        self._num_counted += 1
        place = self._places.get(token_id)
        if token_id in self._came:
            assert place is not None, "a token that came has a place"
            self._added[place] -= self._sampling.frequency_penalty
            return
        self._came.add(token_id)
        if place is None:
            place = self._place(token_id)
        self._factors[place] = self._sampling.repetition_penalty
        self._added[place] -= self._sampling.presence_penalty + self._sampling.frequency_penalty

    def edits(self) -> TokenEdits:
        """The tokens that are touched, each once, with repetition factor and what is added after it."""
        count = len(self._places)
        ids, factors = self._ids[:count], self._factors[:count]
        added = self._added[:count]
        if self._num_counted >= self._sampling.min_new_tokens or not len(self._end_ids):
            return TokenEdits(ids, factors, added)
        others = ~np.isin(ids, self._end_ids)
        num_ends = len(self._end_ids)
        return TokenEdits(
            np.append(ids[others], self._end_ids),
            np.append(factors[others], np.ones(num_ends, dtype=np.float32)),
            np.append(added[others], np.full(num_ends, -np.inf)),
        )

    def _place(self, token_id: int) -> int:
        place = self._places.get(token_id)
        if place is None:
            place = self._places[token_id] = len(self._places)
            if place == len(self._ids):
                self._ids, self._factors, self._added = (
                    np.concatenate([each, np.empty_like(each)]) for each in (self._ids, self._factors, self._added)
                )
            self._ids[place], self._factors[place], self._added[place] = token_id, 1.0, 0.0
        return place


def logit_rules(sampling: SamplingParams, prompt_ids: Iterable[int], *, end_ids: frozenset[int]) -> LogitRules | None:
    """The rules of a request, None where its settings touch no logit."""
    return LogitRules(sampling, prompt_ids, end_ids=end_ids) if sampling.edits_logits else None
