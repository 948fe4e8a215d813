"""Penalties, biases and the minimum length."""

import math

import numpy as np
import pytest
import torch

from sgl_runtime.batch import LogitEdits
from sgl_runtime.device.base import select_device
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.model_runner.sampler import apply_logit_edits
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.scheduler.logit_rules import logit_rules

END_IDS = frozenset({9})


def edited(logits: list[float], prompt: list[int], output: list[int], **sampling: object) -> list[float]:
    """What a request's rules make of its logits, through the arrays that cross to the device."""
    rules = logit_rules(SamplingParams.from_dict(sampling), prompt, end_ids=END_IDS)
    for token_id in output:
        rules.count(token_id)
    edits = rules.edits()
    rows = torch.tensor([[0.0] * len(logits), logits])
    apply_logit_edits(
        rows,
        LogitEdits(
            rows=np.full(len(edits.token_ids), 2),
            token_ids=edits.token_ids,
            repetition=edits.repetition,
            added=edits.added.astype(np.float32),
        ),
        np.array([0, 0, 1]),
        select_device("cpu", num_threads=None),
    )
    assert rows[0].eq(0).all()
    return rows[1].tolist()


def test_frequency_counts_and_presence_does_not():
    logits = edited([1.0] * 5, [0, 1], [2, 2, 2, 3], frequency_penalty=0.5, presence_penalty=0.25)
    assert logits == pytest.approx([1.0, 1.0, 1 - 1.5 - 0.25, 1 - 0.5 - 0.25, 1.0])


def test_repetition_reaches_prompt_and_output_by_the_sign_of_the_logit():
    assert edited([2.0, -2.0, 2.0, 2.0], [0, 1], [2], repetition_penalty=2.0) == pytest.approx([1.0, -4.0, 1.0, 2.0])


def test_a_bias_is_added_after_the_penalties():
    logits = edited([2.0, 2.0], [0], [0], repetition_penalty=2.0, presence_penalty=0.5, logit_bias={"0": 3, "1": -100})
    assert logits == pytest.approx([1 - 0.5 + 3, -98.0])


def test_nothing_ends_before_the_minimum_length():
    logits = edited([1.0] * 10, [], [1], min_new_tokens=2, stop_token_ids=[4])
    assert [index for index, value in enumerate(logits) if math.isinf(value)] == [4, 9]
    assert edited([1.0] * 10, [], [1, 1], min_new_tokens=2, stop_token_ids=[4]) == [1.0] * 10


def test_settings_that_change_nothing_make_no_rules():
    assert (
        logit_rules(SamplingParams.from_dict({"frequency_penalty": 0, "logit_bias": {}}), [1], end_ids=END_IDS) is None
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("frequency_penalty", 3),
        ("presence_penalty", "x"),
        ("repetition_penalty", 0),
        ("min_new_tokens", -1),
        ("logit_bias", [1]),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {"1": 101}),
        ("logit_bias", {"1": True}),
    ],
)
def test_wrong_values_are_named(field, value):
    with pytest.raises(InvalidRequestError, match=f"sampling_params.{field}") as caught:
        SamplingParams.from_dict({field: value})
    assert caught.value.param.startswith(f"sampling_params.{field}")


def test_rules_may_touch_many_tokens():
    ids = list(range(200))
    assert edited([2.0] * 200, ids, [], repetition_penalty=2.0) == [1.0] * 200
    assert edited([2.0] * 200, [], [], logit_bias={str(token_id): 1 for token_id in ids}) == [3.0] * 200
    assert edited([2.0] * 200, [], ids, presence_penalty=0.5) == [1.5] * 200
