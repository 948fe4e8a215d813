"""PendingReply: what one live request has generated so far, and the reply that it makes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sgl_runtime.errors import ERRORS_BY_CODE, SglRuntimeError
from sgl_runtime.ipc.messages import FinishReason, GrammarReport, TextDelta, TokenAlternatives
from sgl_runtime.ipc.request_parts import FloatRows
from sgl_runtime.server.generate_request import GenerateRequest
from sgl_runtime.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True)
class Update:
    """What is new in a reply.

    Attributes:
        text: Text to append.
        ids: Ids to append.
        logprobs: Log probabilities of `ids`, empty where none are wanted; None for the first of a prompt.
        alternatives: What else might have come in the place of each of `ids`, empty where it is not wanted.
        finish: Set with the last update.
    """

    text: str
    ids: list[int]
    logprobs: list[float | None]
    alternatives: list[TokenAlternatives | None]
    finish: FinishReason | None


@dataclass
class _Output:
    """Everything generated; each list is only ever appended to."""

    texts: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    input_logprobs: list[float | None] = field(default_factory=list)
    alternatives: list[TokenAlternatives | None] = field(default_factory=list)
    input_alternatives: list[TokenAlternatives | None] = field(default_factory=list)
    hidden_states: list[FloatRows] = field(default_factory=list)


class PendingReply:
    """Collects the deltas of one request.

    Args:
        request: The request.
        vocabulary: For the text of log probability triples.

    Attributes:
        index: Place of the request in its call.
        input_ids, text_ids: The prompt as ids, and the ids of the request's text in it; set by `set_prompt`.  What a
            session puts in front of them comes with the first delta.
        is_sent: Whether the scheduler has it.
        is_probe: Whether the server itself asks, to see that it works: no limit and no metric counts it.
        started_at: When it came.
        last: The newest delta; None before the first.
        forced_places: Which output tokens a grammar left no choice for.
        vector: What a request with `pooling` gave; None before its end.
        error: Why there will be no reply; None while there may be one.
    """

    def __init__(self, request: GenerateRequest, vocabulary: Vocabulary, *, index: int) -> None:
        self.request = request
        self.index = index
        self.input_ids: list[int] = []
        self.text_ids: list[int] = []
        self.is_sent = False
        self.is_probe = False
        self.last: TextDelta | None = None
        self.forced_places: list[int] = []
        self.vector: FloatRows | None = None
        self.error: SglRuntimeError | None = None
        self._vocabulary = vocabulary
        self.started_at = time.monotonic()
        self._finished: float | None = None
        self._output = _Output()
        self._num_taken_texts = 0
        self._num_taken_ids = 0

    @property
    def is_finished(self) -> bool:
        """Whether the reply is complete, or will never be."""
        return self._finished is not None

    @property
    def num_output(self) -> int:
        """Generated tokens so far."""
        return len(self._output.ids)

    @property
    def output_ids(self) -> list[int]:
        """Ids generated so far; not to be changed."""
        return self._output.ids

    @property
    def text(self) -> str:
        """Generated text so far."""
        return "".join(self._output.texts)

    def set_prompt(self, input_ids: list[int], text_ids: list[int]) -> None:
        """Keep the prompt for the reply: all its ids, and those of the request's text among them."""
        self.input_ids, self.text_ids = input_ids, text_ids

    def apply(self, delta: TextDelta) -> None:
        """Append a delta."""
        self.last = delta
        if delta.text:
            self._output.texts.append(delta.text)
        self._output.ids.extend(delta.new_ids)
        if delta.num_forced_ids:
            num_ids = len(self._output.ids)
            self.forced_places.extend(range(num_ids - delta.num_forced_ids, num_ids))
        if delta.output_logprobs:
            self._output.logprobs.extend(delta.output_logprobs)
        if delta.input_logprobs:
            self._output.input_logprobs.extend(delta.input_logprobs)
        if delta.output_alternatives:
            self._output.alternatives.extend(delta.output_alternatives)
        if delta.input_alternatives:
            self._output.input_alternatives.extend(delta.input_alternatives)
        if delta.prompt_ids is not None:
            self.input_ids = delta.prompt_ids
        if delta.hidden_states is not None:
            self._output.hidden_states.append(delta.hidden_states)
        if delta.vector is not None:
            self.vector = delta.vector
        if delta.finish is None:
            return
        self._finished = time.monotonic()
        if delta.finish.type == "abort" and delta.finish.code is not None:
            error = ERRORS_BY_CODE.get(delta.finish.code, SglRuntimeError)
            self.error = error(delta.finish.message or "the request failed", param=self._param_of(delta.finish))

    def fail(self, error: SglRuntimeError) -> None:
        """End the request without a reply."""
        self.error = error
        self._finished = time.monotonic()

    def take_update(self) -> Update:
        """What came since the last call."""
        output = self._output
        begin, self._num_taken_ids = self._num_taken_ids, len(output.ids)
        texts, self._num_taken_texts = output.texts[self._num_taken_texts :], len(output.texts)
        finish = None if self.last is None else self.last.finish
        return Update("".join(texts), output.ids[begin:], output.logprobs[begin:], output.alternatives[begin:], finish)

    def first_probes(self) -> list[float] | None:
        """Log probabilities of the ids that were asked for, in the place of the first output token; None before."""
        alternatives = self._output.alternatives
        return list(alternatives[0].probes) if alternatives and alternatives[0] is not None else None

    def prompt_update(self) -> Update:
        """The prompt as if it had been generated; the token that begins every sequence only if the text has it."""
        raw = [token_bytes(self._vocabulary, token_id) for token_id in self.input_ids]
        text, first = self.request.text, 0
        if text is None or self.request.input_ids is not None or self.request.session_params is not None:
            text = b"".join(raw).decode(errors="replace")
        elif b"".join(raw[1:]) == text.encode():
            first = 1
        output = self._output
        return Update(
            text, self.input_ids[first:], output.input_logprobs[first:], output.input_alternatives[first:], None
        )

    def meta_info(self) -> dict[str, Any]:
        """The `meta_info` object of the reply so far."""
        last = self.last
        meta: dict[str, Any] = {
            "id": self.request.client_rid,
            "finish_reason": None
            if last is None or last.finish is None
            else _finish_object(last.finish, len(self._output.ids)),
            "prompt_tokens": len(self.input_ids),
            "completion_tokens": len(self._output.ids),
            "cached_tokens": 0 if last is None else last.cached_tokens,
            "e2e_latency": (self._finished or time.monotonic()) - self.started_at,
        }
        if last is not None and last.grammar is not None:
            meta.update(_grammar_fields(last.grammar))
            meta["forced_tokens"] = last.forced_tokens
        if self._output.hidden_states and self.is_finished:
            meta["hidden_states"] = _hidden_lists(self._output.hidden_states, len(self.input_ids))
        if self.request.return_logprob:
            meta["output_token_logprobs"] = self._triples(self._output.logprobs, self._output.ids)
            meta.update(self._alternatives("output", self._output.alternatives))
            if self.request.logprob_start_len >= 0:
                scored_ids = self.input_ids[self.request.logprob_start_len :]
                meta["input_token_logprobs"] = self._triples(self._output.input_logprobs, scored_ids)
                meta.update(self._alternatives("input", self._output.input_alternatives))
        return meta

    def reply(self) -> dict[str, Any]:
        """The reply so far, as docs/protocol.md has it."""
        output, last = self._output, self.last
        reply: dict[str, Any] = {"text": "".join(output.texts), "output_ids": list(output.ids)}
        if last is not None and last.finish is not None:
            reply["text_output_ids"] = output.ids[: last.num_text_ids]
            reply["text_output_tail"] = last.text_tail
        if self.request.return_text_ids:
            reply["text_ids"] = self.text_ids
        if self.request.in_list:
            reply["index"] = self.index
        reply["meta_info"] = self.meta_info()
        return reply

    def _triples(self, logprobs: list[float | None], ids: list[int]) -> list[list[Any]]:
        return [self._triple(logprob, token_id) for logprob, token_id in zip(logprobs, ids, strict=False)]

    def _triple(self, logprob: float | None, token_id: int) -> list[Any]:
        with_text = self.request.return_text_in_logprobs
        return [logprob, token_id, token_text(self._vocabulary, token_id) if with_text else None]

    def _alternatives(self, side: str, found: Sequence[TokenAlternatives | None]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.request.top_logprobs_num:
            fields[f"{side}_top_logprobs"] = [
                None if entry is None else [self._triple(logprob, token_id) for logprob, token_id in entry.top]
                for entry in found
            ]
        probe_ids = self.request.token_ids_logprob
        if probe_ids:
            fields[f"{side}_token_ids_logprobs"] = [
                None if entry is None else list(map(self._triple, entry.probes, probe_ids)) for entry in found
            ]
        return fields

    def _param_of(self, finish: FinishReason) -> str | None:
        kind = self.request.sampling.grammar_kind
        if finish.code == "bad_grammar" and kind:
            return f"{self.request.path}sampling_params.{kind}"
        return None if finish.param is None else self.request.path + finish.param


def token_bytes(vocabulary: Vocabulary, token_id: int) -> bytes:
    """The bytes of a token; none for an id that only pads the model's vocabulary."""
    return vocabulary.token_bytes[token_id] if token_id < len(vocabulary.token_bytes) else b""


def token_text(vocabulary: Vocabulary, token_id: int) -> str:
    """The text of one token by itself; a part of a character shows as U+FFFD."""
    return token_bytes(vocabulary, token_id).decode(errors="replace")


def _hidden_lists(parts: list[FloatRows], num_prompt_ids: int) -> list[Any]:
    """A list of the prompt's rows, then one row for each output token that the model has read."""
    data = b"".join(part.data for part in parts)
    rows = np.frombuffer(data, dtype="<f4").reshape(-1, parts[0].size)
    return [rows[:num_prompt_ids].tolist(), *rows[num_prompt_ids:].tolist()]


def _grammar_fields(report: GrammarReport) -> dict[str, Any]:
    fields: dict[str, Any] = {"grammar_compile_time": report.compile_time, "grammar_backend": report.backend}
    if report.relaxed is not None:
        fields["grammar_relaxed"] = [{"path": path, "reason": reason} for path, reason in report.relaxed]
    return fields


def _finish_object(finish: FinishReason, num_output_ids: int) -> dict[str, Any]:
    if finish.type == "stop":
        regex = {} if finish.regex is None else {"regex": finish.regex}
        return {"type": "stop", "matched": finish.matched, **regex}
    if finish.type == "length":
        return {"type": "length", "length": num_output_ids}
    return {"type": "abort", "message": finish.message or "aborted"}
