"""Log probabilities of a pass, in chunks over all rows, against one row at a time."""

import numpy as np
import pytest
import torch

from sgl_runtime.batch import Batch, SamplingBatch
from sgl_runtime.device.base import select_device
from sgl_runtime.model_runner.logprobs import LOGPROB_CHUNK, input_logprobs

# Prefix length, new tokens, first new token that is scored (-1: none), how many likeliest ones, ids of choice.
ROWS = [
    (0, LOGPROB_CHUNK + 44, 0, 3, [7]),
    (4, 9, -1, 0, []),
    (0, 1, 0, 2, [1, 2]),
    (5, 6, 1, 0, []),
    (0, 2 * LOGPROB_CHUNK, 5, 0, [0, 19, 3]),
    (3, 2, 1, 1, []),
]


def make_batch(ids: np.ndarray, *, with_alternatives: bool) -> Batch:
    size = len(ROWS)
    nothing = np.zeros(size, dtype=np.float32)
    return Batch(
        kind="extend",
        row_ids=np.arange(size, dtype=np.int32),
        prefix_lens=np.array([row[0] for row in ROWS], dtype=np.int32),
        extend_lens=np.array([row[1] for row in ROWS], dtype=np.int32),
        input_ids=ids,
        slot_ids=np.arange(len(ids), dtype=np.int32),
        changed_slots=(),
        samples=np.zeros(size, dtype=np.bool_),
        sampling=SamplingBatch(
            temperatures=nothing, top_ps=nothing, top_ks=nothing.astype(np.int32), min_ps=nothing, uniforms=nothing
        ),
        wants_logprob=np.zeros(size, dtype=np.bool_),
        logprob_starts=np.array([row[2] for row in ROWS], dtype=np.int32),
        top_nums=np.array([row[3] for row in ROWS], dtype=np.int32) if with_alternatives else None,
        probe_ids=tuple(np.array(row[4], dtype=np.int64) for row in ROWS) if with_alternatives else None,
    )


@pytest.mark.parametrize("with_alternatives", [False, True])
def test_chunks_give_what_each_row_gives_alone(with_alternatives):
    generator = torch.Generator().manual_seed(0)
    total = sum(row[1] for row in ROWS)
    hidden, weight = torch.randn(total, 8, generator=generator), torch.randn(8, 20, generator=generator)
    ids = np.random.default_rng(0).integers(0, 20, total)
    chunks: list[int] = []

    def logits(states: torch.Tensor) -> torch.Tensor:
        chunks.append(len(states))
        return states @ weight

    batch = make_batch(ids, with_alternatives=with_alternatives)
    found = input_logprobs(batch, hidden, logits, select_device("cpu", num_threads=None))
    assert max(chunks) == LOGPROB_CHUNK
    assert len(chunks) == -(-sum(chunks) // LOGPROB_CHUNK)
    table = (hidden @ weight).log_softmax(-1).numpy()
    begin = 0
    for row, (prefix, length, start, num_top, probes) in enumerate(ROWS):
        values = found.values[row]
        if start < 0:
            assert values is None
        else:
            places = range(begin + start, begin + length)
            wanted = [table[place - 1, ids[place]] if place > begin else np.nan for place in places]
            np.testing.assert_allclose(values, wanted, atol=1e-5)
            assert start or not prefix
        wants = with_alternatives and start >= 0 and (num_top or probes)
        assert (found.alternatives is not None and found.alternatives[row] is not None) == bool(wants)
        if wants:
            entry = found.alternatives[row]
            for index, place in enumerate(places):
                if place > begin:
                    order = np.argsort(-table[place - 1])[:num_top]
                    assert entry.top_ids[index].tolist() == order.tolist()
                    np.testing.assert_allclose(entry.top_logprobs[index], table[place - 1][order], atol=1e-5)
                    np.testing.assert_allclose(entry.probe_logprobs[index], table[place - 1][probes], atol=1e-5)
                else:
                    assert np.isnan(entry.top_logprobs[index]).all()
                    assert np.isnan(entry.probe_logprobs[index]).all()
        begin += length
