"""Deterministic inference: bit by bit the same alone and in company, cached or not, in pieces or whole."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fakes.tiny_llama import save_tiny_llama
from sgl_runtime.device.cpu import CpuDevice
from sgl_runtime.engine import Engine
from sgl_runtime.errors import ConfigError
from sgl_runtime.scheduler.uniforms import uniforms

# Sizes that are no multiples of a vector's.
SHAPES = {"hidden_size": 60, "intermediate_size": 77, "num_attention_heads": 6, "num_key_value_heads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_llama(path, max_position_embeddings=512, **SHAPES)
    return str(path)


@pytest.fixture(scope="module")
def make_engine(folder: str) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def build(**flags: Any) -> Engine:
        settings = {"max_total_tokens": 2048, "max_running_requests": 12, "enable_deterministic_inference": True}
        engines.append(Engine(folder, **{**settings, **flags}))
        return engines[-1]

    yield build
    for engine in engines:
        engine.shutdown()


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(3)
    shared = [rng.randrange(3, 260) for _ in range(140)]
    return [
        shared[: rng.choice([0, 9, 130, 140])] + [rng.randrange(3, 260) for _ in range(rng.randrange(1, 40))]
        for _ in range(count)
    ]


def sampling(index: int) -> dict[str, Any]:
    """Every other request is drawn, most of them with a filter."""
    return {
        "temperature": index % 2,
        "sampling_seed": index,
        "max_new_tokens": 10,
        "ignore_eos": True,
        "top_p": 0.9 if index % 3 else 1.0,
    }


def ask(engine: Engine, ids: list[list[int]], *, first: int = 0, **options: Any) -> list[Any]:
    """Ids and log probabilities of each; those of the prompt are of all of it, and keep the cache from being used."""
    settings = [sampling(first + index) for index in range(len(ids))]
    replies = engine.generate(input_ids=ids, sampling_params=settings, return_logprob=True, **options)
    metas = [reply["meta_info"] for reply in replies]
    return [
        (reply["output_ids"], meta["output_token_logprobs"], meta.get("input_token_logprobs"))
        for reply, meta in zip(replies, metas, strict=True)
    ]


def test_results_are_bit_equal_however_they_are_computed(make_engine: Callable[..., Engine]) -> None:
    ids = prompts(9)
    whole = make_engine(disable_radix_cache=True, chunked_prefill_size=-1)
    together = ask(whole, ids, logprob_start_len=0)
    alone = [ask(whole, [prompt], first=index, logprob_start_len=0)[0] for index, prompt in enumerate(ids)]
    assert together == alone
    pieces = make_engine(chunked_prefill_size=24, max_running_requests=5, enable_mixed_chunk=True)
    assert ask(pieces, ids, logprob_start_len=0) == together
    # Without log probabilities of the prompt the cache is used.
    assert [entry[:2] for entry in ask(pieces, ids)] == [entry[:2] for entry in together]
    stats = pieces.get_server_info()["internal_states"][0]
    assert stats["cached_tokens_total"] > 300
    assert pieces.get_server_info()["attention_backend"] == "invariant"


def test_the_plain_mode_rounds_by_company(folder: str) -> None:
    """What the mode is for: without it these differ in their last bits."""
    ids = prompts(12)
    with Engine(folder, max_total_tokens=2048, max_running_requests=12, disable_radix_cache=True) as engine:
        together = ask(engine, ids, logprob_start_len=0)
        alone = [ask(engine, [prompt], logprob_start_len=0)[0] for prompt in ids]
    assert [entry[0] for entry in together][::2] == [entry[0] for entry in alone][::2]
    assert together != alone


@pytest.mark.parametrize("columns", [6, 77, 1001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_in_any_company(columns: int, dtype: torch.dtype) -> None:
    ops = CpuDevice(num_threads=None, deterministic=True).ops
    x = torch.randn(333, 2 * columns, generator=torch.Generator().manual_seed(1)).to(dtype)
    weight = torch.randn(50, 2 * columns, generator=torch.Generator().manual_seed(2)).to(dtype)
    packed = ops.pack_weight(weight)
    norm = torch.ones(2 * columns, dtype=dtype)
    for operation in (
        ops.silu_and_mul,
        lambda rows: ops.linear(rows, packed),
        lambda rows: ops.rms_norm(rows, norm, 1e-5),
        lambda rows: rows.float().log_softmax(dim=-1),
    ):
        whole = operation(x)
        for count in (1, 2, 17, 100):
            for begin in (0, 5, 200):
                assert torch.equal(operation(x[begin : begin + count]), whole[begin : begin + count])
    torch.testing.assert_close(ops.linear(x, packed), F.linear(x, weight), atol=1e-1, rtol=5e-2)


def test_another_attention_contradicts_the_mode() -> None:
    with pytest.raises(ConfigError, match="it must be auto or invariant"):
        Engine("nowhere", enable_deterministic_inference=True, attention_backend="reference")


def test_seeds_decide_alone() -> None:
    """Draws are a function of (seed, index), whoever else draws."""
    seeds = np.array([5, 7, 5], dtype=np.uint64)
    drawn = uniforms(seeds, np.array([0, 0, 1], dtype=np.uint64))
    for place, index in enumerate([0, 0, 1]):
        alone = uniforms(seeds[place : place + 1], np.array([index], dtype=np.uint64))
        assert alone[0] == drawn[place]
