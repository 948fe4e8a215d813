"""Mixed requests through a model of real size, beside the same weights in float32 and plain torch.

The same code runs a tiny model on the kernels in Triton's interpreter where there is no GPU.  On a GPU:

    python -m pytest tests/runtime/model_runner/test_model_at_size.py -m "gpu or not gpu" -s
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytest
import torch

from fakes import llama_8b
from fakes.forced_passes import ForcedPasses, ForcedRequest, Kept, make_requests, run_passes
from fakes.interpreted_device import InterpretedDevice
from fakes.plain_llama import PlainLlama
from sgl_runtime.attention.table import ATTENTION_BACKENDS
from sgl_runtime.batch import Batch
from sgl_runtime.device.base import Device, select_device
from sgl_runtime.device.flashinfer_library import is_built, jit_spec, prefill_request, why_no_prefill
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool
from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.model_runner.build import TUNED_ROWS
from sgl_runtime.model_runner.logit_processors import LogitProcessors
from sgl_runtime.model_runner.model_runner import ModelRunner
from sgl_runtime.model_runner.rehearsal import RehearsedModel, rehearse
from sgl_runtime.model_runner.sampler_table import SAMPLERS
from sgl_runtime.model_store.model_config import ModelConfig
from sgl_runtime.models.llama import LlamaForCausalLM

HAS_GPU = torch.cuda.is_available()
# Triton's interpreter does not compute in bfloat16.
DTYPE, WIDE = (torch.bfloat16, torch.float32) if HAS_GPU else (torch.float32, torch.float64)
"""Types of the model, and of what is taken for exact."""

NUM_NEW = 8
"""Tokens behind each prompt: there are as many decode passes at most."""

MAX_ERROR = 0.12 if HAS_GPU else 1e-5
"""Largest ‖a - b‖ / ‖b‖ of a row of logits.

A rounding to bfloat16 errs by a thousandth of a number in the mean.  Each layer rounds what it adds to the residual
stream, and the stream itself, twice; and layers of random weights, whose softmax and norms are of their inputs' size,
enlarge the errors of those before.  In plain torch 32 such layers (1024 features, on a CPU) are in bfloat16 0.03 to 0.06
away from themselves in float32; twice that is far below the 1.4 of logits that have nothing to do with each other, which
is where an error in slots, positions or masks ends, since it grows in the same way.
"""

MAX_RATIOS = 2.0, 1.5
"""How many times the error of plain torch in the same type ours may be: of the worst rows, and of those in the middle."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A model and its requests.

    Attributes:
        shapes: Of the model, as Hugging Face writes them.
        lengths: Number of requests, and the longest prompt or part behind a shared prefix.
        families: See `make_requests`.
        graph_rows: Rows of the largest graph.
        full: Numbers of rows of decode passes that fill a graph.
        loose: Numbers of rows that do not, or for which there is none.
        pass_tokens: See `ForcedPasses`.
        min_shared: See `ForcedPasses`.
    """

    shapes: dict[str, Any]
    lengths: tuple[int, int]
    families: tuple[tuple[int, int, int], ...]
    graph_rows: int
    full: tuple[int, ...]
    loose: tuple[int, ...]
    pass_tokens: int
    min_shared: int

    @cached_property
    def requests(self) -> list[ForcedRequest]:
        """Lengths of all orders of magnitude are as frequent."""
        count, longest = self.lengths
        lengths = np.exp(np.random.default_rng(5).uniform(0, np.log(longest), count)).astype(int)
        lengths[-2:] = 1, longest
        vocab_size = self.shapes["vocab_size"]
        return make_requests(lengths.tolist(), self.families, num_new=NUM_NEW, vocab_size=vocab_size, seed=6)


TINY = Size(
    shapes={
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rope_theta": 500_000.0,
    },
    lengths=(7, 30),
    families=((4, 12, 4),),
    graph_rows=4,
    full=(4, 1),
    loose=(7, 3),
    pass_tokens=48,
    min_shared=4,
)
LLAMA_8B = Size(
    shapes={**llama_8b.SHAPES, "max_position_embeddings": 1024},
    lengths=(256, 600),
    families=((48, 256, 130), (16, 200, 0)),
    graph_rows=256,
    full=(256, 64, 8, 1),
    loose=(200, 21, 3),
    pass_tokens=4096,
    min_shared=128,
)


@dataclass(frozen=True)
class Outcome:
    """Logits of prompts, and of decode passes without and with graphs."""

    prompts: Kept
    passes: list[Batch]
    eager: Kept
    graphs: Kept


class Bench:
    """A model on a device, and what came of its requests; that is found out within the first test that asks."""

    def __init__(self, size: Size, device: Device, model: LlamaForCausalLM, config: ModelConfig) -> None:
        self.size, self.device, self.model, self.config = size, device, model, config
        self.num_slots = sum(len(each.ids) - each.shared_len for each in size.requests)
        self.told: list[str] = []

    def runners(self, backend: str, *graph_rows: int) -> list[ModelRunner]:
        """Runners of these largest graphs, 0 for none, over one pool and table."""
        pool = TokenToKVPool(self.config, num_slots=self.num_slots, dtype=DTYPE, device=self.device.torch_device)
        table = SlotTable(
            num_rows=len(self.size.requests), context_length=self.config.context_length, device=self.device
        )
        attention = ATTENTION_BACKENDS.load(backend)(pool=pool, slot_table=table, ops=self.device.ops)
        runners = []
        for rows in graph_rows:
            runner = ModelRunner(
                self.model,
                attention=attention,
                slot_table=table,
                device=self.device,
                processors=LogitProcessors({}),
                sampler=SAMPLERS.load("triton")(self.device),
            )
            runner.capture_graphs(rows, spare_slot=pool.spare_slot)
            runners.append(runner)
        return runners

    def plan(self) -> ForcedPasses:
        """A fresh plan of all passes."""
        size = self.size
        return ForcedPasses(
            size.requests, num_slots=self.num_slots, pass_tokens=size.pass_tokens, min_shared=size.min_shared
        )

    @cached_property
    def outcome(self) -> Outcome:
        """What our kernels give."""
        eager_runner, graph_runner = self.runners("triton", 0, self.size.graph_rows)
        plan = self.plan()
        prompts = run_passes(eager_runner, plan.prompts(), plan.places)
        rng = np.random.default_rng(8)
        eager, graphs, passes = Kept([], []), Kept([], []), []
        for count in (*self.size.full, *self.size.loose):
            batch = plan.decode(rng.choice(len(self.size.requests), count, replace=False).tolist())
            passes.append(batch)
            # The same pass twice: keys and values of the new tokens are written anew.
            eager.add(run_passes(eager_runner, [batch], plan.places))
            graphs.add(run_passes(graph_runner, [batch], plan.places))
            if len(passes) == 1:
                self._draw_both_ways(graph_runner, batch)
        return Outcome(prompts, passes, eager, graphs)

    def _draw_both_ways(self, runner: ModelRunner, batch: Batch) -> None:
        """A pass that the host may edit ends with the logits; of the same ones the same is drawn, bit by bit."""
        drawn = []
        for is_edited in (False, True):
            chosen = replace(batch, is_edited=is_edited)
            output = runner.forward(chosen)
            assert (output.drawn is None) == is_edited
            drawn.append(runner.sample(chosen, output).wait().token_ids.tolist())
        assert drawn[0] == drawn[1]

    @cached_property
    def expected(self) -> dict[torch.dtype, dict[tuple[int, int], torch.Tensor]]:
        """The rows of logits by request and position, of plain torch in both types."""
        wanted = Kept(self.outcome.prompts.places + self.outcome.graphs.places, []).by_request(len(self.size.requests))
        texts = [request.ids for request in self.size.requests]
        rows = {}
        for dtype in (WIDE, DTYPE):
            found = PlainLlama(self.model, self.config, dtype).logits(texts, wanted)
            rows[dtype] = {
                (index, position): logits
                for index, positions in enumerate(wanted)
                for position, logits in zip(positions, found[index], strict=True)
            }
        return rows

    def check(self, name: str, kept: Kept) -> None:
        """Every row is as near to what is exact as the type lets it be; what was found is told in the end."""
        wide, plain = (torch.stack([self.expected[dtype][place] for place in kept.places]) for dtype in (WIDE, DTYPE))
        ours, theirs = errors(torch.cat(kept.logits), wide), errors(plain, wide)
        worst, middle, plain_worst, plain_middle = (
            float(value) for found in (ours, theirs) for value in (found.max(), found.median())
        )
        self.told.append(
            f"{name}: {len(ours)} rows, error at most {worst:.2e}, median {middle:.2e};"
            f" plain torch in the same type {plain_worst:.2e}, {plain_middle:.2e}"
        )
        assert worst < MAX_ERROR, self.told[-1]
        assert worst < MAX_RATIOS[0] * plain_worst, self.told[-1]
        assert middle < MAX_RATIOS[1] * plain_middle, self.told[-1]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(TINY, id="tiny"),
        pytest.param(LLAMA_8B, id="8b", marks=[pytest.mark.gpu, pytest.mark.slow]),
    ],
)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    size: Size = request.param
    device = select_device("cuda", num_threads=None) if HAS_GPU else InterpretedDevice()
    config = ModelConfig.from_json(size.shapes, source="test")
    rehearsed = RehearsedModel(
        shapes=config, dtype=DTYPE, num_rows=len(size.requests), graph_rows=size.graph_rows, max_grammar_depth=8
    )
    # As at a start.  The interpreter has nothing to compile, and no time for it.
    wait_for_kernels = device.compile_ahead(partial(rehearse, rehearsed)) if HAS_GPU else None
    model = LlamaForCausalLM(config, context=BuildContext(DTYPE, device.torch_device, device.ops))
    model.make_up_weights()
    # Products grow as they do at 4096 features, whatever the size: attention would see nothing of keys near zero.
    for parameter in model.parameters():
        if parameter.dim() > 1 and config.hidden_size != 4096:
            parameter.data.mul_((4096 / config.hidden_size) ** 0.5)
    if wait_for_kernels is not None:
        wait_for_kernels()
    device.ops.tune_linears([count for count in TUNED_ROWS if count <= size.graph_rows])
    bench = Bench(size, device, model, config)
    yield bench
    print(*bench.told, sep="\n")


def errors(logits: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """(n,) ‖a - b‖ / ‖b‖ of the rows."""
    wide = expected.to(WIDE)
    return (logits.to(WIDE) - wide).norm(dim=-1) / wide.norm(dim=-1)


def test_the_requests_are_mixed(bench):
    """Prompts in pieces and over shared prefixes, ranges that rows share on two levels, rows of all settings."""
    prompts, lengths = bench.plan().prompts(), {request.prompt_len for request in bench.size.requests}
    assert any((batch.prefix_lens > 0).any() and not batch.samples.all() for batch in prompts)
    assert any(batch.changed_slots for batch in prompts)
    assert {1, bench.size.lengths[1]} <= lengths
    assert {part.begin > 0 for batch in bench.outcome.passes for part in batch.shared_ranges} == {False, True}


def test_logits_are_those_of_a_wider_type(bench):
    bench.check("prompts", bench.outcome.prompts)
    bench.check("decode passes", bench.outcome.eager)
    bench.check("decode graphs", bench.outcome.graphs)


def test_a_graph_that_a_pass_fills_gives_the_very_same_logits(bench):
    """The same kernels run; where rows fill a graph up products are of other shapes, and by other kernels."""
    outcome = bench.outcome
    for batch, eager, graph in zip(outcome.passes, outcome.eager.logits, outcome.graphs.logits, strict=True):
        furthest = float(errors(graph, eager).max())
        bench.told.append(f"graph beside eager: {batch.size} rows, {furthest:.2e} apart at most")
        assert furthest < MAX_ERROR, bench.told[-1]
        if batch.size in bench.size.full:
            assert torch.equal(graph, eager), bench.told[-1]


@pytest.mark.gpu
@pytest.mark.slow
def test_prompts_through_flashinfer_are_those_of_float32(bench):
    where, dim = bench.device.torch_device, bench.config.head_dim
    reason = why_no_prefill(dtype=DTYPE, head_dim=dim, device=where)
    if reason is not None:
        pytest.skip(reason)
    if not is_built(jit_spec(prefill_request(dtype=DTYPE, head_dim=dim, device=where))):
        pytest.skip("the module is not compiled; a server that asks for it compiles it")
    (runner,) = bench.runners("flashinfer", 0)
    plan = bench.plan()
    bench.check("prompts by flashinfer", run_passes(runner, plan.prompts(), plan.places))
