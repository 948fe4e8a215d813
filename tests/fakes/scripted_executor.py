"""ScriptedExecutor: drives a scheduler without a model.

The next token is a hash of the whole context, read back through the slots that the scheduler assigned: a wrong slot, a slot
given to two requests or a stale prefix changes the output.
"""

from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from sgl_runtime.batch import Alternatives, Batch, LogitEdits, StepOutput
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.forward.forward_batch import new_positions


def next_token(ids: list[int], num_tokens: int, shift: int = 0) -> int:
    """The token that follows a context; a sampled one is shifted by the random number of its draw."""
    value = 17
    for token in ids:
        value = (value * 31 + token + 7) % 1_000_003
    return (value + shift) % num_tokens


def logprob_of(ids: list[int], token: int) -> float:
    """The log probability of a token behind a context, a number that float32 holds exactly."""
    return -next_token([*ids, token], 4096) / 64


class ScriptedExecutor:
    """See `Executor`.

    Args:
        num_slots: Slots of the pool.
        num_rows: Rows of the slot table.
        context_length: Positions a row.
        num_tokens: Ids that are drawn, 0 .. num_tokens - 1.
        overlap: Whether the scheduler plans ahead.
        num_host_slots: Slots of the pool in host memory.
        keeps_batches: Whether all batches are kept for a test to look at; a server would fill its memory with them.
        pass_s: How long each pass takes.
    """

    def __init__(
        self,
        *,
        num_slots: int,
        num_rows: int,
        context_length: int,
        num_tokens: int,
        overlap: bool = False,
        num_host_slots: int = 0,
        keeps_batches: bool = True,
        pass_s: float = 0.0,
    ) -> None:
        self.runs_beside_host = overlap
        # As on a device: what was drawn last for each row of the table.
        self.drawn = np.zeros(num_rows, dtype=np.int64)
        self.pool = np.full(num_slots, -1, dtype=np.int64)
        self.host_pool = np.full(num_host_slots, -1, dtype=np.int64)
        self.table = np.zeros((num_rows, context_length), dtype=np.int64)
        self.num_tokens = num_tokens
        self.batches: list[Batch] = []
        self._keeps_batches = keeps_batches
        self._pass_s = pass_s
        # What custom processors would have been given.
        self.processor_params: list[dict[str, Any]] = []

    def launch(self, batch: Batch) -> "ScriptedStep":
        if self._pass_s:
            Event().wait(self._pass_s)
        if self._keeps_batches:
            self.batches.append(batch)
        if batch.stores is not None:
            assert len(set(batch.stores.host_slots.tolist())) == len(batch.stores.host_slots), "a slot stored twice"
            self.host_pool[batch.stores.host_slots] = self.pool[batch.stores.device_slots]
        if batch.loads is not None:
            assert len(set(batch.loads.device_slots.tolist())) == len(batch.loads.device_slots), "a slot loaded twice"
            self.pool[batch.loads.device_slots] = self.host_pool[batch.loads.host_slots]
        for row, prefix in batch.changed_slots:
            self.table[row, : len(prefix)] = prefix
        rows = np.repeat(batch.row_ids, batch.extend_lens)
        self.table[rows, new_positions(batch)] = batch.slot_ids
        assert len(set(batch.slot_ids.tolist())) == len(batch.slot_ids), "one slot for two new tokens"
        for shared in batch.shared_ranges:
            slots = self.table[batch.row_ids[shared.rows], : shared.end]
            assert bool((slots == slots[0]).all()), "rows share what is said to be shared"
            assert shared.end <= batch.prefix_lens[shared.rows].min()
        ids = batch.input_ids
        self.pool[batch.slot_ids] = np.where(ids < 0, self.drawn[np.maximum(-1 - ids, 0)], ids)
        if batch.given_rows is not None:
            # A row stands for the token that its first number says.
            given = batch.given_rows
            self.pool[batch.slot_ids[given.places]] = given.rows[:, 0].astype(np.int64)
        shifts = np.where(batch.sampling.temperatures > 0, batch.sampling.uniforms, 0.0) * self.num_tokens
        tokens = [
            next_token(self.pool[self.table[row, :length]].tolist(), self.num_tokens, int(shift)) if samples else -1
            for row, length, samples, shift in zip(
                batch.row_ids, batch.context_lens, batch.samples, shifts, strict=True
            )
        ]
        return ScriptedStep(self, batch, self._output(batch, np.array(tokens, dtype=np.int64)))

    def _output(self, batch: Batch, tokens: np.ndarray) -> StepOutput:
        contexts = [
            self.pool[self.table[row, :length]].tolist()
            for row, length in zip(batch.row_ids, batch.context_lens, strict=True)
        ]
        following = [-1] * batch.size if batch.next_ids is None else batch.next_ids.tolist()
        scored = [
            range(prefix + start, len(context) + (following[row] >= 0)) if start >= 0 else None
            for row, (prefix, start, context) in enumerate(
                zip(batch.prefix_lens, batch.logprob_starts, contexts, strict=True)
            )
        ]
        drawn_contexts = contexts
        contexts = [
            [*context, token] if token >= 0 else context for context, token in zip(contexts, following, strict=True)
        ]
        return StepOutput(
            token_ids=tokens,
            hidden_states=self._hidden_states(batch, drawn_contexts),
            vectors=self._vectors(batch, drawn_contexts),
            logprobs=np.array(list(map(logprob_of, drawn_contexts, tokens.tolist())), dtype=np.float32),
            input_logprobs=tuple(
                None
                if places is None
                else np.array(
                    [logprob_of(context[:place], context[place]) if place else np.nan for place in places],
                    dtype=np.float32,
                )
                for context, places in zip(contexts, scored, strict=True)
            ),
            alternatives=tuple(
                self._alternatives(batch, row, [context]) if batch.wants_alternatives(row) else None
                for row, context in enumerate(drawn_contexts)
            ),
            input_alternatives=tuple(
                self._alternatives(batch, row, [context[:place] for place in places])
                if places is not None and batch.wants_alternatives(row)
                else None
                for row, (context, places) in enumerate(zip(contexts, scored, strict=True))
            ),
        )

    def _hidden_states(self, batch: Batch, contexts: list[list[int]]) -> tuple[np.ndarray | None, ...] | None:
        """Position and token of each place."""
        if batch.hidden_starts is None:
            return None
        begins = batch.prefix_lens + batch.hidden_starts
        return tuple(
            np.array([[place, context[place]] for place in range(begin, len(context))], dtype=np.float32)
            if start >= 0
            else None
            for begin, start, context in zip(begins.tolist(), batch.hidden_starts.tolist(), contexts, strict=True)
        )

    def _vectors(self, batch: Batch, contexts: list[list[int]]) -> tuple[np.ndarray | None, ...] | None:
        """Over the span of each row: how many tokens, the sum of their positions, and of their ids."""
        spans = batch.pool_spans
        if spans is None:
            return None
        found: list[np.ndarray | None] = []
        for prefix, start, end, context in zip(batch.prefix_lens, spans.starts, spans.ends, contexts, strict=True):
            places = np.arange(prefix + start, prefix + end)
            values = [len(places), places.sum(), np.array(context)[places].sum() if len(places) else 0]
            found.append(np.array(values, dtype=np.float32) if start >= 0 else None)
        return tuple(found)

    def _alternatives(self, batch: Batch, row: int, contexts: list[list[int]]) -> Alternatives:
        """As "likeliest" tokens the ones that follow the next token."""
        num_top = 0 if batch.top_nums is None else int(batch.top_nums[row])
        probes = [] if batch.probe_ids is None else batch.probe_ids[row].tolist()
        top = [[next_token(context, 200) + rank for rank in range(num_top)] for context in contexts]
        return Alternatives(
            top_ids=np.array(top, dtype=np.int64).reshape(len(contexts), num_top),
            top_logprobs=np.array(
                [[logprob_of(context, token) for token in ids] for context, ids in zip(contexts, top, strict=True)],
                dtype=np.float32,
            ).reshape(len(contexts), num_top),
            probe_logprobs=np.array(
                [[logprob_of(context, token) for token in probes] for context in contexts], dtype=np.float32
            ).reshape(len(contexts), len(probes)),
        )

    def open_grammars(self, token_bytes, **sizes) -> None:
        return None

    def forward_seconds(self) -> float:
        return 0.0

    def start_profile(self, folder: Path, **options: Any) -> str:
        raise InvalidRequestError("there is nothing to profile")

    def stop_profile(self) -> str:
        raise InvalidRequestError("no profile is being recorded")


class ScriptedStep:
    def __init__(self, executor: ScriptedExecutor, batch: Batch, output: StepOutput) -> None:
        self.executor, self.batch, self.output = executor, batch, output

    def sample(
        self, masks: np.ndarray | None, logit_edits: LogitEdits | None, forced_ids: np.ndarray | None = None
    ) -> "ScriptedStep":
        """The drawn token, or where a mask or an edit forbids it the next one, going round, that is allowed.

        Edits forbid a token where they lower its logit, unless they lower all.
        """
        ids = self.output.token_ids
        for row in np.flatnonzero(ids >= 0).tolist():
            allowed = np.ones(self.executor.num_tokens, dtype=np.bool_)
            if masks is not None:
                allowed = np.unpackbits(masks[row].view(np.uint8), bitorder="little").astype(np.bool_)
            if logit_edits is not None:
                lowered = (logit_edits.rows == row) & (logit_edits.added < 0) & (logit_edits.token_ids < len(allowed))
                rest = allowed.copy()
                rest[logit_edits.token_ids[lowered]] = False
                allowed = rest if rest.any() else allowed
            if not allowed[ids[row]]:
                choices = np.flatnonzero(allowed)
                # Beyond what is drawn only where a grammar leaves nothing else.
                drawn = choices[choices < self.executor.num_tokens]
                choices = drawn if len(drawn) else choices
                later = choices[choices > ids[row]]
                ids[row] = later[0] if len(later) else choices[0]
        calls = () if logit_edits is None else logit_edits.calls
        self.executor.processor_params.extend(call.params for call in calls)
        if any(call.name == "fail" for call in calls):
            failing = {call.row for call in calls if call.name == "fail"}
            failures = tuple("failed: no" if row in failing else None for row in range(self.batch.size))
            self.output = replace(self.output, failures=failures)
        rows = self.batch.row_ids[self.batch.samples]
        self.executor.drawn[rows] = ids[self.batch.samples]
        return self

    def wait(self) -> StepOutput:
        return self.output
