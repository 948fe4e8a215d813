"""Requests through a scheduler and a small model on the kernels of a GPU, with slots handed out in pages."""

from typing import Any

import pytest
import torch

from fakes.interpreted_device import InterpretedDevice
from fakes.small_model import NUM_ROWS, SHAPES, make_runner
from sgl_runtime.composition import assemble_scheduler
from sgl_runtime.config import CacheConfig, GrammarConfig, ModelSection, RuntimeConfig, SchedulerConfig
from sgl_runtime.device.base import Device, select_device
from sgl_runtime.executor.local import LocalExecutor
from sgl_runtime.ipc.messages import TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.tokenizer.vocabulary import Vocabulary

VOCAB_SIZE = SHAPES["vocab_size"]
NUM_SLOTS, CONTEXT, NUM_NEW = 448, 128, 4
SHARED = [(7 * i) % 250 + 1 for i in range(70)]
FIRST = [[*SHARED, 3], [8, 9]]
"""They are done before the others come."""
THEN = [[*SHARED, 5, 6], [*SHARED[:66], 7], [*SHARED, 3, 250, 11, 12], [*range(20, 53)]]


def serve(device: Device, page_size: int) -> tuple[dict[str, list[int]], int]:
    """What all requests gave, and how many tokens were found in the cache."""
    config = RuntimeConfig(
        model=ModelSection(model_path="none"),
        cache=CacheConfig(max_total_tokens=NUM_SLOTS, page_size=page_size),
        # Prompts are computed in pieces, beside requests that decode.
        scheduler=SchedulerConfig(max_running_requests=NUM_ROWS, chunked_prefill_size=64, enable_mixed_chunk=True),
        grammar=GrammarConfig(disable_grammar_disk_cache=True),
    )
    scheduler = assemble_scheduler(
        config,
        LocalExecutor(make_runner(device, num_slots=NUM_SLOTS, context_length=CONTEXT)),
        vocabulary=Vocabulary([bytes([i % 256]) for i in range(VOCAB_SIZE)], frozenset(range(256, VOCAB_SIZE))),
        eos_ids=frozenset({VOCAB_SIZE - 1}),
        num_logits=VOCAB_SIZE,
        context_length=CONTEXT,
    )
    found: dict[str, list[int]] = {}
    for number, prompts in enumerate((FIRST, THEN)):
        for place, ids in enumerate(prompts):
            settings: dict[str, Any] = {"max_new_tokens": NUM_NEW, "temperature": 0.0, "ignore_eos": True}
            request = TokenizedRequest(rid=f"{number}.{place}", input_ids=ids, sampling=SamplingParams(**settings))
            scheduler.accept(request)
        while scheduler.has_work():
            for delta in scheduler.step():
                found.setdefault(delta.rid, []).extend(delta.new_ids)
    scheduler.check()
    cached = scheduler.stats()["cached_tokens_total"]
    scheduler.close()
    return found, cached


@pytest.fixture(scope="module")
def expected() -> dict[str, list[int]]:
    """What plain torch gives."""
    return serve(select_device("cpu", num_threads=None), 1)[0]


@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_requests_give_the_same_whatever_the_page(expected, page_size):
    device = select_device("cuda", num_threads=None) if torch.cuda.is_available() else InterpretedDevice()
    found, cached = serve(device, page_size)
    assert all(len(ids) == NUM_NEW for ids in expected.values())
    assert found == expected
    # The three that begin alike find whole pages of what they share.
    shared = [70, 66, 71]
    assert cached == sum(length // page_size * page_size for length in shared)
