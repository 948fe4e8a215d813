"""Constrained requests whose masks the device makes, through the whole scheduler, beside the same on the host."""

import re
from typing import Any

import pytest
import torch

from fakes.interpreted_device import InterpretedDevice
from fakes.small_model import NUM_ROWS, NUM_SLOTS, SHAPES, make_runner
from sgl_runtime.composition import assemble_scheduler
from sgl_runtime.config import CacheConfig, GrammarConfig, ModelSection, RuntimeConfig, SchedulerConfig
from sgl_runtime.device.base import Device, select_device
from sgl_runtime.executor.local import LocalExecutor
from sgl_runtime.ipc.messages import TokenDelta, TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.scheduler import grammar_queue
from sgl_runtime.scheduler.scheduler import Scheduler
from sgl_runtime.tokenizer.vocabulary import Vocabulary

EOS = 299
WORDS = [b"yes", b"no", b'":', b'{"', b"ab", b"bc", b'"}', b"true"]
TOKENS = [*(bytes([i]) for i in range(256)), *WORDS]
TOKENS += [b"<unused>"] * (SHAPES["vocab_size"] - len(TOKENS) - 1) + [b"<eos>"]
VOCABULARY = Vocabulary(TOKENS, frozenset({*range(256 + len(WORDS), EOS), EOS}))
SCHEMA = (
    '{"type": "object", "properties": {"a": {"type": "array", "items": {"enum": ["ab", true]}}}, "required": ["a"]}'
)


def as_tokens(text: str) -> list[int]:
    """Each byte a token, but for the words."""
    parts = re.split("(" + "|".join(re.escape(word.decode()) for word in WORDS) + ")", text)
    return [
        token
        for part in parts
        for token in ([256 + WORDS.index(part.encode())] if part.encode() in WORDS else part.encode())
    ]


def make_scheduler(device: Device, **grammar: Any) -> Scheduler:
    config = RuntimeConfig(
        model=ModelSection(model_path="none"),
        cache=CacheConfig(max_total_tokens=NUM_SLOTS),
        scheduler=SchedulerConfig(max_running_requests=NUM_ROWS),
        grammar=GrammarConfig(disable_grammar_disk_cache=True, **grammar),
    )
    return assemble_scheduler(
        config,
        LocalExecutor(make_runner(device)),
        vocabulary=VOCABULARY,
        eos_ids=frozenset({EOS}),
        num_logits=SHAPES["vocab_size"],
        context_length=64,
        encode=as_tokens,
    )


def request(rid: str, ids: list[int], **settings: Any) -> TokenizedRequest:
    fields = {"max_new_tokens": 12, "temperature": 0.0, **settings}
    return TokenizedRequest(rid=rid, input_ids=ids, sampling=SamplingParams(**fields))


REQUESTS = [
    request("free", [5, 6, 7]),
    request("regex", [8, 9], regex="(yes|no), (bc)+[a-d]{2}"),
    request("json", [1], json_schema=SCHEMA),
    request("sampled", [3, 4], regex="[a-z]{3,6}(yes)?!", temperature=1.0, sampling_seed=5),
    request("edited", [7], regex="[ab]{4}", frequency_penalty=0.5),
    request("filtered", [2, 2], regex="[0-9]{3}", temperature=1.0, top_p=0.5, sampling_seed=1),
    request("choice", [11], choices=("yes", "no", "abbc")),
]


def run(scheduler: Scheduler) -> dict[str, tuple[list[int], str]]:
    ids: dict[str, list[int]] = {}
    ends: dict[str, str] = {}
    for message in REQUESTS:
        scheduler.accept(message)
    while scheduler.has_work():
        for output in scheduler.step():
            if isinstance(output, TokenDelta):
                ids.setdefault(output.rid, []).extend(output.new_ids)
                if output.finish is not None:
                    ends[output.rid] = output.finish.type
        scheduler.check()
    scheduler.close()
    return {rid: (found, ends[rid]) for rid, found in ids.items()}


@pytest.fixture
def device() -> Device:
    return select_device("cuda", num_threads=None) if torch.cuda.is_available() else InterpretedDevice()


def text(ids: list[int]) -> str:
    return b"".join(TOKENS[token] for token in ids if token != EOS).decode()


@pytest.mark.parametrize("jumping", [pytest.param(True, marks=pytest.mark.slow), False])
def test_constrained_requests_end_as_with_masks_of_the_host(device, monkeypatch, jumping):
    expected = run(make_scheduler(select_device("cpu", num_threads=None)))
    if not jumping:
        # As where many requests decode together.
        monkeypatch.setattr(grammar_queue, "MAX_JUMPING", 0)
    outcomes = run(make_scheduler(device))
    # Draws with a temperature use other random numbers on the device.
    greedy = {message.rid for message in REQUESTS if message.sampling.temperature == 0.0}
    assert {rid: outcomes[rid] for rid in greedy} == {rid: expected[rid] for rid in greedy}
    for message in REQUESTS:
        pattern = message.sampling.regex
        ids, end = outcomes[message.rid]
        if pattern is not None and end == "stop":
            assert re.fullmatch(pattern, text(ids)), message.rid
    assert {rid for rid, (_, end) in outcomes.items() if end == "stop"} >= {"regex", "choice", "filtered", "edited"}
