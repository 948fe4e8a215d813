"""StopChecker: end of sequence, stop ids, stop strings and regexes, a complete grammar, length."""

from dataclasses import dataclass

from sgl_runtime.ipc.messages import FinishReason
from sgl_runtime.scheduler.req import Req
from sgl_runtime.scheduler.stop_search import StopMatch, StopSearch
from sgl_runtime.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True)
class StopVerdict:
    """How a request ended with its newest token.

    Attributes:
        reason: Why.
        num_trimmed_ids: Last ids that stay out of the text.
    """

    reason: FinishReason
    num_trimmed_ids: int


class StopChecker:
    """Decides after each token whether a request has ended.

    Args:
        vocabulary: Bytes of the tokens.
        eos_ids: Ids that end the output.
    """

    def __init__(self, vocabulary: Vocabulary, *, eos_ids: frozenset[int]) -> None:
        self._vocabulary = vocabulary
        self._eos_ids = eos_ids

    def check(self, req: Req) -> StopVerdict | None:
        """The verdict on the newest token, None while the request goes on.

        Of stop strings and regexes the match that begins first wins, then the longest.
        """
        token_id, sampling = req.tokens.last, req.sampling
        is_eos = token_id in self._eos_ids and not sampling.ignore_eos
        if is_eos or token_id in sampling.stop_token_ids:
            trimmed = 0 if sampling.no_stop_trim else 1
            return StopVerdict(FinishReason(type="stop", matched=token_id), trimmed)
        if req.stops is not None:
            match = self._match_stop(req.stops, token_id, skip_special=sampling.skip_special_tokens)
            if match is not None:
                return StopVerdict(FinishReason(type="stop", matched=match.text, regex=match.regex), 0)
        if req.grammar is not None and req.grammar.must_end():
            return StopVerdict(FinishReason(type="stop"), 0)
        if len(req.tokens) >= req.max_len:
            return StopVerdict(FinishReason(type="length"), 0)
        return None

    def _match_stop(self, stops: StopSearch, token_id: int, *, skip_special: bool) -> StopMatch | None:
        if token_id >= self._vocabulary.size or (skip_special and token_id in self._vocabulary.special_ids):
            return None
        return stops.feed(self._vocabulary.token_bytes[token_id])
