"""Penalties on the real model: against transformers, and unchanged by retraction and batch mates."""

import pytest
import torch
from msgspec.structs import replace
from transformers import LlamaForCausalLM

from sgl_runtime.config import CacheConfig, SchedulerConfig

pytestmark = pytest.mark.model

PROMPT = "The cat sat on the mat. The cat sat on the mat. The cat"


def greedy_with_penalties(
    model: LlamaForCausalLM, ids: list[int], num_new: int, *, frequency: float, presence: float, repetition: float
) -> list[int]:
    """The definition, step by step."""
    output: list[int] = []
    for _ in range(num_new):
        with torch.inference_mode():
            logits = model(torch.tensor([ids + output])).logits[0, -1].tolist()
        for token in set(ids) | set(output):
            logits[token] = logits[token] / repetition if logits[token] > 0 else logits[token] * repetition
        for token in set(output):
            logits[token] -= frequency * output.count(token) + presence
        output.append(max(range(len(logits)), key=logits.__getitem__))
    return output


def test_penalised_output_equals_the_definition(driver, reference_model):
    ids = driver.host.tokenizer.encode(PROMPT, add_bos=True)
    options = {"frequency": 0.7, "presence": 0.4, "repetition": 1.2}
    wanted = greedy_with_penalties(reference_model, ids, 20, **options)
    request = driver.request(
        PROMPT, max_new_tokens=20, ignore_eos=True, **{f"{k}_penalty": v for k, v in options.items()}
    )
    assert driver.run([request])[0].ids == wanted
    plain = driver.run([driver.request(PROMPT, max_new_tokens=20, ignore_eos=True)])[0]
    assert plain.ids != wanted


@pytest.mark.slow
def test_penalties_survive_retraction_and_company(driver, driver_for):
    options = {"max_new_tokens": 300, "ignore_eos": True, "frequency_penalty": 0.3, "repetition_penalty": 1.1}
    prompts = [f"Number {i}: a list of words. " for i in range(3)]
    alone = [driver.run([driver.request(prompt, **options)])[0].ids for prompt in prompts]
    crowded = driver_for(cache=CacheConfig(max_total_tokens=850), scheduler=SchedulerConfig(max_running_requests=4))
    together = crowded.run([crowded.request(prompt, **options) for prompt in prompts])
    assert crowded.scheduler.stats()["num_retracted_total"] > 0
    assert [outcome.ids for outcome in together] == alone


def test_minimum_length_and_bias(driver):
    eos = driver.host.tokenizer.eos_id
    prompt = "<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\n"
    short = driver.run([driver.request(prompt, max_new_tokens=30)])[0]
    assert short.ids[-1] == eos
    assert len(short.ids) < 25
    longer = driver.run([driver.request(prompt, max_new_tokens=30, min_new_tokens=25)])[0]
    assert eos not in longer.ids[:25]
    forced = driver.run([driver.request(prompt, max_new_tokens=3, logit_bias=((500, 100.0),))])[0]
    assert forced.ids == [500, 500, 500]
    assert replace(driver.request(prompt).sampling, logit_bias=((500, 100.0),)).edits_logits
