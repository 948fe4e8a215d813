"""Keys and values that go to host memory and come back."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_llama import save_tiny_llama
from sgl_runtime.batch import Batch, SamplingBatch, SlotCopies
from sgl_runtime.device.base import Device, select_device
from sgl_runtime.device.cpu import CpuDevice
from sgl_runtime.engine import Engine
from sgl_runtime.errors import ConfigError
from sgl_runtime.forward.host_kv_pool import HostKVPool
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool
from sgl_runtime.model_store.model_config import ModelConfig

LAYERS, HEADS, SIZE, SLOTS = 3, 2, 4, 5000


class NoHostMemory(CpuDevice):
    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        raise RuntimeError("out of memory")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return select_device(request.param, num_threads=None)


@pytest.fixture
def pool(tmp_path: Path, device: Device) -> TokenToKVPool:
    save_tiny_llama(tmp_path, num_hidden_layers=LAYERS, num_key_value_heads=HEADS, head_dim=SIZE)
    config = ModelConfig.from_folder(tmp_path)
    pool = TokenToKVPool(config, num_slots=SLOTS, dtype=torch.float32, device=device.torch_device)
    generator = torch.Generator().manual_seed(0)
    for layer in range(LAYERS):
        keys, values = (torch.randn(SLOTS, HEADS, SIZE, generator=generator) for _ in range(2))
        moved = (x.to(device.torch_device) for x in (torch.arange(SLOTS), keys, values))
        pool.store(layer, *moved)
    return pool


def contents(pool: TokenToKVPool, slots: np.ndarray) -> torch.Tensor:
    sides = [side for layer in range(LAYERS) for side in pool.layer(layer)]
    index = torch.from_numpy(slots.astype(np.int64)).to(sides[0].device)
    return torch.stack([side[index] for side in sides]).cpu()


def batch(stores: SlotCopies | None, loads: SlotCopies | None) -> Batch:
    one = np.ones(1, dtype=np.int32)
    number = np.ones(1, dtype=np.float32)
    return Batch(
        kind="decode",
        row_ids=0 * one,
        prefix_lens=0 * one,
        extend_lens=one,
        input_ids=np.ones(1, dtype=np.int64),
        slot_ids=one,
        changed_slots=(),
        samples=np.ones(1, dtype=np.bool_),
        sampling=SamplingBatch(
            temperatures=number, top_ps=number, top_ks=one, min_ps=number, uniforms=np.zeros(1, dtype=np.float64)
        ),
        wants_logprob=np.zeros(1, dtype=np.bool_),
        logprob_starts=-one,
        stores=stores,
        loads=loads,
    )


def copies(device_slots: np.ndarray, host_slots: np.ndarray) -> SlotCopies:
    return SlotCopies(device_slots=device_slots.astype(np.int32), host_slots=host_slots.astype(np.int32))


def test_what_comes_back_is_bit_equal_whatever_the_slots(pool, device):
    rng = np.random.default_rng(0)
    host = HostKVPool(pool, num_slots=4000, device=device)
    device_slots, host_slots = rng.permutation(SLOTS)[:3000], rng.permutation(4000)[:3000]
    before = contents(pool, device_slots)
    host.copy(batch(copies(device_slots, host_slots), None))
    order, other = rng.permutation(3000), rng.permutation(SLOTS)[:3000]
    host.copy(batch(None, copies(other, host_slots[order])))
    assert torch.equal(contents(pool, other), before[:, order])


def test_copies_to_the_host_come_before_those_from_it(pool, device):
    host = HostKVPool(pool, num_slots=8, device=device)
    first, second = np.arange(4), np.arange(4, 8)
    host.copy(batch(copies(first, first), None))
    a, b = contents(pool, first), contents(pool, second)
    # The second four go to the host, and the first four come back to where they were.
    host.copy(batch(copies(second, second), copies(second, first)))
    assert torch.equal(contents(pool, second), a)
    host.copy(batch(None, copies(first, second)))
    assert torch.equal(contents(pool, first), b)


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_too_little_host_memory_is_a_config_error(pool):
    with pytest.raises(ConfigError, match=r"hicache_size asks for 0\.0 GB of host memory.*out of memory"):
        HostKVPool(pool, num_slots=8, device=NoHostMemory(num_threads=None))


@pytest.mark.parametrize("policy", ["write_back", "write_through"])
@pytest.mark.parametrize("page_size", [1, 16])
def test_a_model_goes_on_from_prefixes_that_were_on_the_host(tmp_path, page_size, policy):
    save_tiny_llama(tmp_path)
    rng = random.Random(3)
    prompts = [[3 + place, *(rng.randrange(3, 260) for _ in range(99))] for place in range(6)]
    params = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
    settings = {"page_size": page_size, "max_total_tokens": 256, "context_length": 160, "dtype": "float32"}
    with Engine(str(tmp_path), **settings, disable_radix_cache=True) as engine:
        expected = [engine.generate(input_ids=ids, sampling_params=params)["output_ids"] for ids in prompts]
    with Engine(
        str(tmp_path), **settings, enable_hierarchical_cache=True, hicache_ratio=4.0, hicache_write_policy=policy
    ) as engine:
        for turn in range(2):
            for ids, output in zip(prompts, expected, strict=True):
                reply = engine.generate(input_ids=ids, sampling_params=params)
                assert reply["output_ids"] == output
                assert reply["meta_info"]["cached_tokens"] == (turn and 99 // page_size * page_size)
