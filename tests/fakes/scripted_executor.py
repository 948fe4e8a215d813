"""ScriptedExecutor: drives a scheduler without a model.

The next token is a hash of the whole context, read back through the slots that the scheduler assigned: a wrong slot, a slot
given to two requests or a stale prefix changes the output.
"""

import numpy as np

from sgl_runtime.batch import Batch, StepOutput
from sgl_runtime.forward.forward_batch import new_positions


def next_token(ids: list[int], num_tokens: int) -> int:
    """The token that follows a context."""
    value = 17
    for token in ids:
        value = (value * 31 + token + 7) % 1_000_003
    return value % num_tokens


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
        return ScriptedStep(np.array(tokens, dtype=np.int64))

    def forward_seconds(self) -> float:
        return 0.0


class ScriptedStep:
    def __init__(self, token_ids: np.ndarray) -> None:
        self.token_ids = token_ids

    def sample(self, masks: np.ndarray | None) -> "ScriptedStep":
        return self

    def wait(self) -> StepOutput:
        size = len(self.token_ids)
        return StepOutput(
            token_ids=self.token_ids, logprobs=np.zeros(size, dtype=np.float32), input_logprobs=(None,) * size
        )
