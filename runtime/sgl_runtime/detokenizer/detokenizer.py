"""Detokenizer: the scheduler's TokenDelta to the TextDelta that the API appends to a reply."""

import logging

from sgl_runtime.detokenizer.decode_state import DecodeState
from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.ipc.messages import (
    DetokenizerOutput,
    DetokenizeStart,
    FinishReason,
    SchedulerOutput,
    TextDelta,
    TokenDelta,
)
from sgl_runtime.tokenizer.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

MAX_DECODE_STATES = 65_536


class Detokenizer:
    """Keeps a decode state for each live request.

    Args:
        vocabulary: Bytes of each token.
        capacity: Most states kept; past it the oldest goes, and its request ends with an error.
    """

    def __init__(self, vocabulary: Vocabulary, *, capacity: int = MAX_DECODE_STATES) -> None:
        self._vocabulary = vocabulary
        self._capacity = capacity
        # In order of arrival: the first one is the oldest.
        self._states: dict[str, DecodeState] = {}

    @property
    def num_states(self) -> int:
        """Requests whose state is held."""
        return len(self._states)

    def accept(self, message: SchedulerOutput) -> list[DetokenizerOutput]:
        """Take one message; what goes on to the API."""
        if isinstance(message, DetokenizeStart):
            self._start(message)
            return []
        if isinstance(message, TokenDelta):
            return [self._decode(message)]
        return [message]

    def _start(self, start: DetokenizeStart) -> None:
        # A second start of a rid begins anew: what an earlier attempt decoded is no part of this one.
        self._states.pop(start.rid, None)
        if len(self._states) >= self._capacity:
            oldest = next(iter(self._states))
            del self._states[oldest]
            logger.warning("decode state dropped rid=%r capacity=%d", oldest, self._capacity)
        self._states[start.rid] = DecodeState(start, self._vocabulary)

    def _decode(self, delta: TokenDelta) -> TextDelta:
        state = self._states.get(delta.rid)
        if state is None:
            return _lost(delta)
        state.append(delta.new_ids[: len(delta.new_ids) - delta.num_trimmed_ids])
        if delta.finish is None:
            return _text_delta(delta, state.take_text())
        del self._states[delta.rid]
        at_stop_string = delta.finish.type == "stop" and isinstance(delta.finish.matched, str)
        final = state.finish(at_stop_string=at_stop_string)
        return _text_delta(delta, final.text, num_text_ids=final.num_text_ids, text_tail=final.text_tail)


def _text_delta(delta: TokenDelta, text: str, *, num_text_ids: int = 0, text_tail: str = "") -> TextDelta:
    return TextDelta(
        rid=delta.rid,
        text=text,
        new_ids=delta.new_ids,
        finish=delta.finish,
        num_text_ids=num_text_ids,
        text_tail=text_tail,
        prompt_tokens=delta.prompt_tokens,
        cached_tokens=delta.cached_tokens,
        queue_time=delta.queue_time,
        grammar=delta.grammar,
        forced_tokens=delta.forced_tokens,
        num_forced_ids=delta.num_forced_ids,
        output_logprobs=delta.output_logprobs,
        input_logprobs=delta.input_logprobs,
        output_alternatives=delta.output_alternatives,
        input_alternatives=delta.input_alternatives,
        prompt_ids=delta.prompt_ids,
        hidden_states=delta.hidden_states,
        vector=delta.vector,
    )


def _lost(delta: TokenDelta) -> TextDelta:
    """The end of a request that cannot be decoded any more."""
    if delta.finish is not None and delta.finish.type == "abort":
        return _text_delta(delta, "")
    reason = FinishReason(
        type="abort",
        message="the decode state of this request was dropped because too many requests are live",
        code=SglRuntimeError.code,
    )
    return TextDelta(rid=delta.rid, text="", new_ids=[], finish=reason)
