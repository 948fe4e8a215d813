"""Requests of one pass that share prefixes, and what might have come instead of each token, on the small real model."""

import random

import msgspec
import numpy as np
import pytest
import torch

from sgl_runtime.ipc.messages import FlushCacheRequest

pytestmark = pytest.mark.model

STORY = "The old lighthouse keeper climbed the stairs every evening, and every evening he counted them aloud: "
ENDINGS = ["one, two", "one, two, three", "one, two, three", "there were", "one, two, three, four, five and", "one"]


def flush(driver) -> None:
    (reply,) = driver.scheduler.accept(FlushCacheRequest(request_id="flush"))
    assert reply.success


def test_a_shared_pass_gives_what_each_request_gives_alone(driver):
    rng = random.Random(0)
    ids = [driver.host.tokenizer.encode(STORY + ending, add_bos=True) for ending in ENDINGS]
    starts = [rng.randrange(len(prompt)) for prompt in ids]
    alone = []
    for prompt, start in zip(ids, starts, strict=True):
        flush(driver)
        alone += driver.run([driver.request(prompt, logprob_start=start, max_new_tokens=5)])
    flush(driver)
    together = driver.run(
        [
            driver.request(prompt, logprob_start=start, max_new_tokens=5)
            for prompt, start in zip(ids, starts, strict=True)
        ]
    )
    for one, other in zip(alone, together, strict=True):
        assert one.ids == other.ids
        np.testing.assert_allclose(np.array(one.logprobs), np.array(other.logprobs), atol=1e-3)
        values, others = (np.array(each.input_logprobs, dtype=float) for each in (one, other))
        np.testing.assert_allclose(values, others, atol=1e-3)
    assert [outcome.last.cached_tokens for outcome in alone] == [0] * len(ids)
    for place, outcome in enumerate(together[1:], start=1):
        before = max(common_length(ids[place], other) for other in ids[:place])
        assert outcome.last.cached_tokens == min(before, max(starts[place] - 1, 0), len(ids[place]) - 1)


def common_length(left: list[int], right: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def test_alternatives_are_those_of_transformers_with_and_without_the_cache(driver, reference_model):
    ids = driver.host.tokenizer.encode(STORY + ENDINGS[1], add_bos=True)
    probes = (5, 1000, 40_000)
    for start in (0, 0, len(ids) // 2):
        message = driver.request(ids, logprob_start=start, max_new_tokens=2)
        message = msgspec.structs.replace(message, top_logprobs_num=4, token_ids_logprob=probes)
        first, second = alternatives_of(driver, message)
        inputs, output = first.input_alternatives, [*ids, *first.new_ids]
        with torch.inference_mode():
            wanted = reference_model(torch.tensor([output])).logits[0].log_softmax(-1)
        assert len(inputs) == len(ids) - start
        assert (inputs[0] is None) == (start == 0)
        places = [*range(start, len(ids)), len(ids), len(ids) + 1]
        found = [*inputs, *first.output_alternatives, *second.output_alternatives]
        for place, entry in zip(places, found, strict=True):
            if place:
                top = wanted[place - 1].topk(4)
                np.testing.assert_allclose([value for value, _ in entry.top], top.values.numpy(), atol=1e-3)
                np.testing.assert_allclose(entry.probes, wanted[place - 1][list(probes)].numpy(), atol=1e-3)


def alternatives_of(driver, message):
    driver.scheduler.accept(message)
    deltas = []
    while driver.scheduler.has_work():
        deltas += driver.scheduler.step()
    return deltas
