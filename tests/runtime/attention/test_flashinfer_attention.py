"""Which passes go through FlashInfer, and what it is told; its kernels are plain torch here, but for tests on a GPU."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fakes.fake_flashinfer import FakeFlashInfer, fake_flashinfer
from fakes.interpreted_device import InterpretedDevice
from sgl_runtime.attention import flashinfer_attention, shared_run
from sgl_runtime.attention.flashinfer_attention import CascadeAttend, FlashInferAttention, PagedAttend, RaggedAttend
from sgl_runtime.attention.reference import ReferenceAttention
from sgl_runtime.attention.triton_attention import TritonDecode, TritonExtend
from sgl_runtime.batch import Batch, SamplingBatch, SharedRange
from sgl_runtime.cache.slot_allocator import SlotAllocator
from sgl_runtime.device.base import Device, select_device
from sgl_runtime.device.flashinfer_library import is_built, jit_spec, prefill_request, why_no_prefill
from sgl_runtime.device.ops import Ops
from sgl_runtime.errors import ConfigError
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool
from sgl_runtime.model_runner.backend_choice import attention_name, sampler_name
from sgl_runtime.model_store.model_config import ModelConfig

DTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float16
"""Triton's interpreter does not know how to multiply matrices of bfloat16."""


class FakeWrapper:
    """FlashInfer's wrapper, in plain torch."""

    def __init__(self, workspace: torch.Tensor, layout: str, *, backend: str) -> None:
        assert layout == "NHD"
        assert backend == "fa3"

    def check(self, *host: torch.Tensor, **settings: Any) -> None:
        """What is planned lies on the host: nothing waits for the device."""
        assert all(tensor.dtype == torch.int32 and tensor.device.type == "cpu" for tensor in host)
        assert settings["q_data_type"] == settings["kv_data_type"] == DTYPE
        self.scale, self.causal = settings["sm_scale"], settings["causal"]

    def attend(
        self,
        q: torch.Tensor,
        contexts: list[tuple[torch.Tensor, torch.Tensor]],
        out: torch.Tensor,
        lse: torch.Tensor | None = None,
    ) -> None:
        assert q.shape == out.shape
        for i, (keys, values) in enumerate(contexts):
            rows = slice(int(self.queries[i]), int(self.queries[i + 1]))
            seen = torch.ones(rows.stop - rows.start, len(keys), dtype=torch.bool)
            if self.causal:
                seen = seen.tril(len(keys) - rows.stop + rows.start)
            key, value = (x.float().repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (keys, values))
            score = torch.einsum("thd,nhd->thn", q[rows].float(), key) * self.scale
            score = score.masked_fill(~seen[:, None], -math.inf)
            out[rows] = torch.einsum("thn,nhd->thd", score.softmax(dim=-1), value).to(out.dtype)
            if lse is not None:
                lse[rows] = score.logsumexp(dim=-1) / math.log(2)


class FakeRagged(FakeWrapper):
    def plan(self, queries, keys, heads, groups, dim, **settings):
        self.check(queries, keys, **settings)
        assert self.causal
        self.queries, self.keys = queries, keys

    def run(self, q, k, v, *, out):
        spans = [slice(int(a), int(b)) for a, b in zip(self.keys[:-1], self.keys[1:], strict=True)]
        self.attend(q, [(k[span], v[span]) for span in spans], out)


class FakePaged(FakeWrapper):
    def plan(self, queries, keys, slots, last_page_lens, heads, groups, dim, page_size, **settings):
        self.check(queries, keys, last_page_lens, **settings)
        assert page_size == 1
        assert last_page_lens.tolist() == [1] * (len(queries) - 1)
        assert settings["max_token_per_sequence"] == int((queries[1:] - queries[:-1]).max())
        assert slots.dtype == torch.int32
        self.queries, self.keys, self.slots = queries, keys, slots.long()

    def run(self, q, caches, *, out, lse=None, return_lse=False):
        assert return_lse == (lse is not None)
        keys, values = (cache.squeeze(1) for cache in caches)
        places = [self.slots[int(a) : int(b)] for a, b in zip(self.keys[:-1], self.keys[1:], strict=True)]
        self.attend(q, [(keys[place], values[place]) for place in places], out, lse)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeFlashInfer]:
    """As if a chip and a compiled module were there."""
    if torch.cuda.is_available():
        pytest.skip("what stands for FlashInfer is plain torch on a CPU")
    with fake_flashinfer(tmp_path) as package:
        package.module.BatchPrefillWithRaggedKVCacheWrapper = FakeRagged
        package.module.BatchPrefillWithPagedKVCacheWrapper = FakePaged
        package.build(f"prefill_fa3_{str(DTYPE).removeprefix('torch.')}_64")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        yield package


@dataclasses.dataclass
class Parts:
    """A pool with what lies in it, and a pass."""

    pool: TokenToKVPool
    table: SlotTable
    batch: Batch
    device: Device

    def run(self, backend: Any, *, seed: int = 0) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """The attend, what it gives, and the new tokens' keys in the pool."""
        forward_batch = ForwardBatch.from_batch(self.batch, self.device)
        attend = backend.prepare(forward_batch)
        generator = torch.Generator().manual_seed(seed)
        tokens, dim = len(self.batch.input_ids), self.pool.layer(0)[0].shape[-1]
        heads = self.pool.num_heads + 2 * self.pool.num_groups
        qkv = torch.randn(tokens, heads, dim, generator=generator).to(self.device.torch_device, DTYPE)
        angles = torch.rand(tokens, dim // 2, generator=generator) * 6
        rotary = tuple(x.to(self.device.torch_device, DTYPE) for x in (angles.cos(), angles.sin()))
        out = attend(qkv, rotary, layer_id=1)
        return attend, out, self.pool.layer(1)[0][forward_batch.slot_ids]


def make_parts(
    device: Device, prefixes: list[int], new: list[int], *, heads: int = 4, groups: int = 2, dim: int = 64,
    page_size: int = 1, kind: str = "extend", shared: Sequence[tuple[list[int], int, int]] = (),
) -> Parts:  # fmt: skip
    """Rows with such prefixes and so many new tokens; `shared` has rows, begin and end of what they share."""
    data = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 10,
        "hidden_size": heads * dim,
        "intermediate_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "max_position_embeddings": 64,
    }
    size, lengths = len(new), [a + b for a, b in zip(prefixes, new, strict=True)]
    pages = [-(-length // page_size) * page_size for length in lengths]
    pool = TokenToKVPool(
        ModelConfig.from_json(data, source="test"),
        num_slots=sum(pages) + 4 * page_size,
        dtype=DTYPE,
        device=device.torch_device,
    )
    for index, part in enumerate(pool.layer(1)):
        part.copy_(torch.randn(part.shape, generator=torch.Generator().manual_seed(index + 5)))
    allocator = SlotAllocator(num_slots=sum(pages) + 4 * page_size, page_size=page_size)
    # Pages that are given back and taken again lie in no order.
    taken = [allocator.allocate(page_size) for _ in range(4)]
    for index in (2, 0, 3, 1):
        allocator.free(taken[index])
    slots = [allocator.allocate(count)[:length] for count, length in zip(pages, lengths, strict=True)]
    for rows, begin, end in shared:
        for row in rows[1:]:
            slots[row][begin:end] = slots[rows[0]][begin:end]
    table = SlotTable(num_rows=size + 2, context_length=max(lengths), device=device)
    ones = np.ones(size, dtype=np.float32)
    row_ids = np.arange(size, 0, -1, dtype=np.int32)
    batch = Batch(
        kind="extend" if kind == "extend" else "decode",
        row_ids=row_ids,
        prefix_lens=np.array(prefixes, dtype=np.int32),
        extend_lens=np.array(new, dtype=np.int32),
        input_ids=np.zeros(sum(new), dtype=np.int64),
        slot_ids=np.concatenate([part[prefix:] for part, prefix in zip(slots, prefixes, strict=True)]),
        changed_slots=tuple(
            (int(row), part[:prefix]) for row, part, prefix in zip(row_ids, slots, prefixes, strict=True)
        ),
        samples=np.ones(size, dtype=np.bool_),
        sampling=SamplingBatch(
            temperatures=ones, top_ps=ones, top_ks=-ones.astype(np.int32), min_ps=0 * ones, uniforms=np.zeros(size)
        ),
        wants_logprob=np.zeros(size, dtype=np.bool_),
        logprob_starts=np.full(size, -1, dtype=np.int32),
        shared_ranges=tuple(SharedRange(np.array(rows), begin, end) for rows, begin, end in shared),
    )
    table.update(batch)
    return Parts(pool, table, batch, device)


def make(parts: Parts, backend: type = FlashInferAttention) -> Any:
    return backend(pool=parts.pool, slot_table=parts.table, ops=parts.device.ops)


def check_equal(parts: Parts, expected_kind: type, *, tolerance: float = 2e-2) -> Any:
    attend, out, keys = parts.run(make(parts))
    assert type(attend) is expected_kind
    reference = ReferenceAttention(pool=parts.pool, slot_table=parts.table, ops=Ops())
    _, expected, expected_keys = parts.run(reference)
    torch.testing.assert_close(keys, expected_keys, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(out.float(), expected.float(), atol=tolerance, rtol=tolerance)
    return attend


@pytest.fixture
def small_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flashinfer_attention, "MIN_PASS_TOKENS", 12)
    monkeypatch.setattr(flashinfer_attention, "MIN_ROW_TOKENS", 4)
    monkeypatch.setattr(flashinfer_attention, "MIN_ROW_TOKENS_BEHIND_PREFIX", 4)


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_run, "MIN_SHARED_POSITIONS", 20)
    monkeypatch.setattr(shared_run, "MIN_SHARING_TOKENS", 12)


@pytest.fixture
def device() -> Device:
    return InterpretedDevice()


def test_prompts_without_prefixes_are_read_where_they_are(library, small_passes, device):
    check_equal(make_parts(device, [0, 0, 0], [5, 9, 1]), RaggedAttend)


@pytest.mark.parametrize("page_size", [1, 16])
def test_contexts_with_prefixes_are_read_in_their_slots(library, small_passes, device, page_size):
    check_equal(make_parts(device, [0, 17, 3], [5, 9, 1], page_size=page_size), PagedAttend)


def planned(attend: Any) -> tuple[list[int], list[int]]:
    """Where the queries and the keys of the sequences that the library attends begin and end."""
    return attend._wrapper.queries.tolist(), attend._wrapper.keys.tolist()


GROUPS = [([2, 1, 3], 0, 37), ([5, 4], 0, 21)]
"""Two groups of rows, with rows before, between and behind them."""


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize(("heads", "groups"), [(4, 2), (6, 2)])
def test_what_rows_share_is_attended_at_once(library, short_runs, device, page_size, heads, groups):
    prefixes, new = [3, 37, 70, 38, 21, 30, 0], [2, 9, 1, 5, 6, 7, 4]
    parts = make_parts(device, prefixes, new, shared=GROUPS, page_size=page_size, heads=heads, groups=groups)
    attend = check_equal(parts, CascadeAttend)
    # The first group saves more.
    assert planned(attend) == ([0, 15], [0, 37])


def test_the_run_that_saves_most_is_attended_at_once(library, short_runs, device):
    parts = make_parts(device, [3, 37, 70, 38, 21, 30, 0], [2, 9, 1, 5, 26, 7, 4], shared=GROUPS)
    assert planned(check_equal(parts, CascadeAttend)) == ([0, 33], [0, 21])


def test_rows_of_a_range_share_what_stands_before_it(library, short_runs, device):
    shared = [([0, 1, 2, 3], 0, 25), ([2, 1], 25, 60)]
    parts = make_parts(device, [25, 60, 61, 30], [4, 9, 9, 4], shared=shared)
    assert planned(check_equal(parts, CascadeAttend)) == ([0, 18], [0, 60])


def test_of_rows_with_others_between_them_those_count_that_follow_one_another(library, short_runs, device):
    parts = make_parts(device, [30, 4, 30, 31], [5, 5, 6, 7], shared=[([3, 0, 2], 0, 30)])
    assert planned(check_equal(parts, CascadeAttend)) == ([0, 13], [0, 30])
    parts = make_parts(device, [30, 4, 30, 3, 31], [5, 5, 6, 2, 7], shared=[([4, 0, 2], 0, 30)])
    check_equal(parts, TritonExtend)


@pytest.mark.parametrize(
    ("end", "new", "kind"), [(20, [6, 6], CascadeAttend), (19, [6, 6], TritonExtend), (20, [6, 5], TritonExtend)]
)
def test_little_that_is_shared_stays_with_triton(library, short_runs, device, end, new, kind):
    check_equal(make_parts(device, [20, 20], new, shared=[([0, 1], 0, end)]), kind)


def test_rows_with_many_new_tokens_are_attended_one_by_one(library, small_passes, short_runs, device):
    check_equal(make_parts(device, [20, 20], [6, 6], shared=[([0, 1], 0, 20)]), PagedAttend)


def test_plans_over_what_is_shared_take_turns_too(library, short_runs, device):
    parts = make_parts(device, [20, 20], [6, 6], shared=[([0, 1], 0, 20)])
    backend = make(parts)
    attends = [backend.prepare(ForwardBatch.from_batch(parts.batch, device)) for _ in range(4)]
    assert len({id(attend._wrapper) for attend in attends[:3]}) == 3
    assert attends[3]._wrapper is attends[0]._wrapper


def test_plans_of_following_passes_lie_in_wrappers_of_their_own(library, small_passes, device):
    parts = make_parts(device, [0, 0], [9, 8])
    backend = make(parts)
    first, second, third, fourth = (backend.prepare(ForwardBatch.from_batch(parts.batch, device)) for _ in range(4))
    wrappers = [attend._wrapper for attend in (first, second, third)]
    assert len(set(map(id, wrappers))) == 3
    assert fourth._wrapper is wrappers[0]


@pytest.mark.parametrize(
    ("prefixes", "new", "kind"), [([0], [11], "extend"), ([0] * 5, [3] * 5, "extend"), ([4] * 13, [1] * 13, "decode")]
)
def test_small_passes_and_decode_passes_stay_with_triton(library, small_passes, device, prefixes, new, kind):
    parts = make_parts(device, prefixes, new, kind=kind)
    backend = make(parts)
    attend = backend.prepare(ForwardBatch.from_batch(parts.batch, device))
    assert isinstance(attend, TritonExtend if kind == "extend" else TritonDecode)
    assert backend.captured is backend.captured.captured


def test_triton_serves_until_the_module_is_there(library, small_passes, device, monkeypatch):
    """The process that compiles is a test of its own."""
    states = iter([False, False, True])

    class Module:
        request = dataclasses.make_dataclass("Request", ["algorithm"])("fa3")

        def __init__(self, request: object, *, instead: str) -> None:
            assert instead == "triton"

        def is_ready(self) -> bool:
            return next(states)

    monkeypatch.setattr(flashinfer_attention, "FlashInferModule", Module)
    parts = make_parts(device, [0, 0], [9, 8])
    backend = make(parts)
    kinds = [type(backend.prepare(ForwardBatch.from_batch(parts.batch, device))) for _ in range(3)]
    assert kinds == [TritonExtend, RaggedAttend, RaggedAttend]


class GpuNames(InterpretedDevice):
    """What a GPU offers; here the device is a CPU, which FlashInfer cannot use."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_backends = ("flashinfer", "triton")
        self.sampling_backends = ("triton", "pytorch", "flashinfer")


def test_auto_passes_over_what_cannot_be_used_and_says_so_once(caplog):
    caplog.set_level("INFO")
    assert attention_name("auto", GpuNames(), dtype=DTYPE, head_dim=64) == "triton"
    (record,) = caplog.records
    assert record.getMessage().startswith("attention backend passed over name=flashinfer reason=")
    assert sampler_name("auto", GpuNames()) == "triton"


def test_what_is_asked_for_by_name_is_refused_where_it_cannot_be_used():
    with pytest.raises(ConfigError, match="attention_backend is 'flashinfer', which cannot be used: it needs a CUDA"):
        attention_name("flashinfer", GpuNames(), dtype=DTYPE, head_dim=64)
    with pytest.raises(ConfigError, match="sampling_backend is 'flashinfer', which cannot be used: it needs a CUDA"):
        sampler_name("flashinfer", GpuNames())
    with pytest.raises(ConfigError, match="on device cpu it must be one of auto, pytorch"):
        sampler_name("triton", select_device("cpu", num_threads=None))


def usable_gpu(dim: int) -> Device:
    device = select_device("cuda", num_threads=None)
    reason = why_no_prefill(dtype=DTYPE, head_dim=dim, device=device.torch_device)
    if reason is not None:
        pytest.skip(reason)
    if not is_built(jit_spec(prefill_request(dtype=DTYPE, head_dim=dim, device=device.torch_device))):
        pytest.skip("the module is not compiled; a server that asks for it compiles it")
    return device


GPU_SHAPES = [(32, 8, 128), (16, 8, 128), (9, 3, 64)]


@pytest.mark.gpu
@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize(("heads", "groups", "dim"), GPU_SHAPES)
def test_on_a_gpu_prompts_equal_plain_attention(small_passes, page_size, heads, groups, dim):
    device = usable_gpu(dim)
    shapes = {"heads": heads, "groups": groups, "dim": dim, "page_size": page_size}
    parts = make_parts(device, [0, 0, 0], [513, 129, 70], **shapes)
    check_equal(parts, RaggedAttend)
    check_equal(make_parts(device, [300, 0, 65], [128, 257, 1], **shapes), PagedAttend)


@pytest.mark.gpu
@pytest.mark.parametrize("shared", [1024, 1500])
@pytest.mark.parametrize(("heads", "groups", "dim"), GPU_SHAPES)
def test_on_a_gpu_what_rows_share_equals_plain_attention(shared, heads, groups, dim):
    device = usable_gpu(dim)
    shapes = {"heads": heads, "groups": groups, "dim": dim}
    # A row before and one behind; of the others some have more before their new tokens, and no tile is full.
    prefixes = [70, *([shared] * 9), shared + 65, shared + 1, 0]
    new = [30, *([101] * 9), 150, 1, 40]
    rows = list(range(1, 12))
    attend = check_equal(make_parts(device, prefixes, new, shared=[(rows, 0, shared)], **shapes), CascadeAttend)
    assert attend._tokens == slice(30, 30 + sum(new[1:12]))
