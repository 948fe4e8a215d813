"""ScriptedExecutor: drives a scheduler without a model.

The next token is a hash of the whole context, read back through the slots that the scheduler assigned: a wrong slot, a slot
given to two requests or a stale prefix changes the output.
"""

import numpy as np

from sgl_runtime.batch import Alternatives, Batch, StepOutput
from sgl_runtime.forward.forward_batch import new_positions


def next_token(ids: list[int], num_tokens: int) -> int:
    """The token that follows a context."""
    value = 17
    for token in ids:
        value = (value * 31 + token + 7) % 1_000_003
    return value % num_tokens


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
    """

    def __init__(self, *, num_slots: int, num_rows: int, context_length: int, num_tokens: int) -> None:
        self.pool = np.full(num_slots, -1, dtype=np.int64)
        self.table = np.zeros((num_rows, context_length), dtype=np.int64)
        self.num_tokens = num_tokens
        self.batches: list[Batch] = []

    def launch(self, batch: Batch) -> "ScriptedStep":
        self.batches.append(batch)
        for row, prefix in zip(batch.row_ids, batch.prefix_slots, strict=True):
            self.table[row, : len(prefix)] = prefix
        rows = np.repeat(batch.row_ids, batch.extend_lens)
        self.table[rows, new_positions(batch)] = batch.slot_ids
        assert len(set(batch.slot_ids.tolist())) == len(batch.slot_ids), "one slot for two new tokens"
        self.pool[batch.slot_ids] = batch.input_ids
        tokens = [
            next_token(self.pool[self.table[row, :length]].tolist(), self.num_tokens) if samples else -1
            for row, length, samples in zip(batch.row_ids, batch.context_lens, batch.samples, strict=True)
        ]
        return ScriptedStep(self._output(batch, np.array(tokens, dtype=np.int64)))

    def _output(self, batch: Batch, tokens: np.ndarray) -> StepOutput:
        contexts = [
            self.pool[self.table[row, :length]].tolist()
            for row, length in zip(batch.row_ids, batch.context_lens, strict=True)
        ]
        scored = [
            range(prefix + start, len(context)) if start >= 0 else None
            for prefix, start, context in zip(batch.prefix_lens, batch.logprob_starts, contexts, strict=True)
        ]
        return StepOutput(
            token_ids=tokens,
            logprobs=np.array(list(map(logprob_of, contexts, tokens.tolist())), dtype=np.float32),
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
                for row, context in enumerate(contexts)
            ),
            input_alternatives=tuple(
                self._alternatives(batch, row, [context[:place] for place in places])
                if places is not None and batch.wants_alternatives(row)
                else None
                for row, (context, places) in enumerate(zip(contexts, scored, strict=True))
            ),
        )

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

    def forward_seconds(self) -> float:
        return 0.0


class ScriptedStep:
    def __init__(self, output: StepOutput) -> None:
        self.output = output

    def sample(self, masks: np.ndarray | None) -> "ScriptedStep":
        """The drawn token, or where a mask forbids it the next one, going round, that it allows."""
        for row in range(0 if masks is None else len(masks)):
            drawn = int(self.output.token_ids[row])
            allowed = np.flatnonzero(np.unpackbits(masks[row].view(np.uint8), bitorder="little"))
            if drawn >= 0 and drawn not in allowed:
                later = allowed[allowed > drawn]
                self.output.token_ids[row] = later[0] if len(later) else allowed[0]
        return self

    def wait(self) -> StepOutput:
        return self.output
