"""The small real model gives what transformers gives, token for token."""

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from sgl_runtime.attention.reference import ReferenceAttention
from sgl_runtime.batch import Batch, SamplingBatch
from sgl_runtime.device.base import select_device
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool
from sgl_runtime.ipc.messages import FlushCacheRequest
from sgl_runtime.model_runner.build import load_model
from sgl_runtime.model_store.model_source import ModelSource

pytestmark = pytest.mark.model

NUM_NEW = 24
TOPICS = [
    "the sea",
    "a lighthouse",
    "an old map",
    "winter bread",
    "three brothers",
    "a violin",
    "the moon",
    "a railway",
    "green tea",
    "chess",
    "a garden",
    "the desert",
    "glass",
    "a clock",
    "rivers",
    "bees",
    "a bridge",
    "salt",
    "paper",
    "the north wind",
]


def make_prompts() -> list[str]:
    """20 prompts of 10 to 500 tokens: chat, prose, code and text in other scripts."""
    filler = (
        "The keeper wrote down the weather every evening, and the boats that had passed, in a small and careful hand. "
    )
    prompts = []
    for index, topic in enumerate(TOPICS):
        body = f"Write about {topic}. " + filler * index
        if index % 3 == 0:
            prompts.append(f"<|im_start|>user\n{body}<|im_end|>\n<|im_start|>assistant\n")
        elif index % 3 == 1:
            prompts.append(body + f"Chapter {index}: Über {topic} \u2014 ")
        else:
            prompts.append(f"# {topic}\ndef count_{index}(items: list[str]) -> dict[str, int]:\n    '''{body}'''\n")
    return prompts


PROMPTS = make_prompts()


def is_greedy_output(model: LlamaForCausalLM, prompt_ids: list[int], output: list[int]) -> bool:
    """Whether transformers, decoding greedily, gives this output.

    One pass over prompt and output: its most likely token after each prefix must be the next one of the output, which
    by induction is what a token-by-token run gives.
    """
    with torch.inference_mode():
        logits = model(torch.tensor([prompt_ids + output])).logits[0]
    return logits[len(prompt_ids) - 1 : -1].argmax(-1).tolist() == output


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_greedy_output_equals_transformers_alone_from_the_cache_and_in_a_batch(driver, reference_model, step):
    """All prompts and a batch of 16 in the slow run, every tenth one by default."""
    prompts = PROMPTS[::step]
    alone = []
    for prompt in prompts:
        first, again = (driver.run([driver.request(prompt, max_new_tokens=NUM_NEW)])[0] for _ in range(2))
        ids = driver.host.tokenizer.encode(prompt, add_bos=True)
        assert 10 <= len(ids) <= 510
        assert is_greedy_output(reference_model, ids, first.ids), prompt[:60]
        assert again.ids == first.ids
        assert again.last.cached_tokens == again.last.prompt_tokens - 1
        alone.append(first.ids)
    (reply,) = driver.scheduler.accept(FlushCacheRequest(request_id="flush"))
    assert reply.success
    batch = driver.run([driver.request(prompt, max_new_tokens=NUM_NEW) for prompt in prompts[:16]])
    assert [outcome.ids for outcome in batch] == alone[:16]
    assert all(outcome.last.cached_tokens < 8 for outcome in batch)


@pytest.mark.parametrize("index", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_greedy_output_equals_what_transformers_generates(driver, reference_model, index):
    ids = torch.tensor([driver.host.tokenizer.encode(PROMPTS[index], add_bos=True)])
    with torch.inference_mode():
        out = reference_model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_NEW, do_sample=False, pad_token_id=2
        )
    ours = driver.run([driver.request(PROMPTS[index], max_new_tokens=NUM_NEW)])[0]
    assert ours.ids == out[0, ids.shape[1] :].tolist()


def test_logits_agree_with_transformers(driver, reference_model):
    ids = [driver.host.tokenizer.encode(prompt, add_bos=True) for prompt in PROMPTS[:6:2]]
    logits = prefill_logits(driver.host.source, ids)
    for row, ours in zip(ids, logits, strict=True):
        with torch.inference_mode():
            theirs = reference_model(torch.tensor([row])).logits[0]
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=0)


def prefill_logits(source: ModelSource, prompts: list[list[int]]) -> list[torch.Tensor]:
    """Logits at every position, all prompts in one pass over the paged pool."""
    device = select_device("cpu", num_threads=None)
    model = load_model(source, dtype=torch.float32, device=device)
    lengths = np.array([len(ids) for ids in prompts], dtype=np.int32)
    total, size = int(lengths.sum()), len(prompts)
    pool = TokenToKVPool(source.config, num_slots=total, dtype=torch.float32, device=device.torch_device)
    table = SlotTable(num_rows=size, context_length=int(lengths.max()), device=device)
    nothing = np.zeros(size, dtype=np.float32)
    batch = Batch(
        kind="extend",
        row_ids=np.arange(size, dtype=np.int32),
        prefix_lens=np.zeros(size, dtype=np.int32),
        extend_lens=lengths,
        input_ids=np.concatenate([np.array(ids) for ids in prompts]),
        slot_ids=np.random.default_rng(0).permutation(total).astype(np.int32),
        changed_slots=(),
        samples=np.zeros(size, dtype=np.bool_),
        sampling=SamplingBatch(
            temperatures=nothing,
            top_ps=nothing + 1,
            top_ks=np.full(size, -1, dtype=np.int32),
            min_ps=nothing,
            uniforms=nothing.astype(np.float64),
        ),
        wants_logprob=np.zeros(size, dtype=np.bool_),
        logprob_starts=np.full(size, -1, dtype=np.int32),
    )
    table.update(batch)
    with torch.inference_mode():
        forward_batch = ForwardBatch.from_batch(batch, device)
        attend = ReferenceAttention(pool=pool, slot_table=table, ops=device.ops).prepare(forward_batch)
        hidden = model.forward(forward_batch.input_ids, forward_batch.positions, attend)
        return list(model.logits(hidden).split(lengths.tolist()))


def test_log_probabilities_agree_with_transformers_with_and_without_the_cache(driver, reference_model):
    for prompt in PROMPTS[1::9]:
        ids = driver.host.tokenizer.encode(prompt, add_bos=True)
        with torch.inference_mode():
            logits = reference_model(torch.tensor([ids])).logits[0].log_softmax(-1)
        wanted = logits[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()
        for start in (0, 0, len(ids) // 2, len(ids) - 1):
            outcome = driver.run([driver.request(prompt, logprob_start=start, max_new_tokens=1)])[0]
            got = outcome.input_logprobs
            assert len(got) == len(ids) - start
            assert (got[0] is None) == (start == 0)
            np.testing.assert_allclose(
                np.array(got, dtype=float)[-len(wanted) :], wanted[max(start - 1, 0) :], atol=1e-3
            )
            np.testing.assert_allclose(outcome.logprobs[0], float(logits[-1].max()), atol=1e-3)
            if start > 1:
                assert outcome.last.cached_tokens == start - 1
