"""A rehearsal: passes of every kind over a model without memory, so that all kernels that they launch are compiled.

What is compiled is what these passes launch, through the very code that runs a model: there is no list of kernels.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from sgl_runtime.attention.base import Attend, AttentionBackend
from sgl_runtime.attention.shared_run import shared_runs
from sgl_runtime.attention.table import ATTENTION_BACKENDS
from sgl_runtime.batch import Batch, GrammarMoves, LogitEdits, SamplingBatch, SharedRange
from sgl_runtime.device.base import Device
from sgl_runtime.device.shapes_only import ShapesOnly
from sgl_runtime.forward.forward_batch import ForwardBatch
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool
from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.model_runner.logit_processors import LogitProcessors
from sgl_runtime.model_runner.model_runner import ModelRunner
from sgl_runtime.model_runner.pass_output import NO_CHOICE, TokenChoice
from sgl_runtime.model_runner.sampler_table import SAMPLERS
from sgl_runtime.model_store.model_config import ModelConfig
from sgl_runtime.models.base import CausalModel
from sgl_runtime.models.finish_loading import pack_linears
from sgl_runtime.models.table import MODELS

_LAYERS = 2
"""All layers but the first are alike."""

_ATTENTION = "triton"
"""The backend whose kernels are compiled; others bring what they need compiled, or decode with this one's."""

_CONTEXT = 1024
"""No kernel depends on the length of contexts, and the model's own would be a large table of rotations."""

_LENGTH = 600
"""Positions of a row."""


@dataclass(frozen=True, kw_only=True)
class RehearsedModel:
    """What the kernels depend on.

    Attributes:
        shapes: Of the model.
        dtype: Of weights, keys and values.
        num_rows: Rows of the slot table.
        graph_rows: Rows of the largest graph; 0 for no graphs.
        max_grammar_depth: Most levels of a request's stack.
        plans_prompts: Says whether FlashInfer attends passes over prompts, from what our kernels prepare; it is asked
            when all else has been run.
    """

    shapes: ModelConfig
    dtype: torch.dtype
    num_rows: int
    graph_rows: int
    max_grammar_depth: int
    plans_prompts: Callable[[], bool] = lambda: False


def rehearse(model: RehearsedModel, device: Device) -> None:
    """Run passes of every kind.

    Args:
        model: What is run.
        device: A `RehearsalDevice`.
    """
    with ShapesOnly():
        _rehearse(model, device)


def _rehearse(model: RehearsedModel, device: Device) -> None:
    shapes = replace(
        model.shapes,
        num_layers=min(_LAYERS, model.shapes.num_layers),
        context_length=min(_CONTEXT, model.shapes.context_length),
    )
    runner = _runner(model, shapes, device)
    grammars = runner.open_grammars([], end_ids=frozenset(), size=shapes.vocab_size, max_depth=model.max_grammar_depth)
    if model.graph_rows:
        runner.capture_graphs(model.graph_rows, spare_slot=_LENGTH)
    for num_rows in range(1, min(3, model.num_rows + 1)):
        rows = np.arange(num_rows, dtype=np.int32)
        extend = _batch("extend", rows, 0, _LENGTH)
        _run(runner, extend)
        # Graphs heed filters themselves, other passes do it behind the logits.
        _run(runner, _filtered(extend))
        for batch, choice in _decode_passes(rows, shapes.vocab_size, has_grammars=grammars is not None):
            _run(runner, batch, choice)
    if grammars is not None:
        grammars.make_masks_ahead()
    if model.plans_prompts():
        planned = _runner(model, shapes, device, plans_prompts=True)
        for prefix_len in (0, 1):
            planned.forward(_batch("extend", np.zeros(1, dtype=np.int32), prefix_len, _LENGTH))
        behind_shared = _batch("extend", np.zeros(2, dtype=np.int32), _LENGTH // 2, _LENGTH // 4)
        planned.forward(replace(behind_shared, shared_ranges=(SharedRange(np.arange(2), 0, _LENGTH // 2),)))


def _decode_passes(
    rows: NDArray[np.int32], vocab_size: int, *, has_grammars: bool
) -> Iterator[tuple[Batch, TokenChoice]]:
    """Decode passes, and all that is done with their logits."""
    plain, size = _batch("decode", rows, _LENGTH - 1, 1), len(rows)
    if size > 1:
        shared = SharedRange(rows.astype(np.int64), 0, _LENGTH // 2)
        yield replace(plain, shared_ranges=(shared,)), NO_CHOICE
    masks = np.zeros((size, -(-vocab_size // 32)), dtype=np.int32)
    nothing, unchanged = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.float32)
    # Logits are edited in float32, whatever the type of the model.
    edits = LogitEdits(rows=nothing, token_ids=nothing, repetition=unchanged + 1, added=unchanged)
    moves = GrammarMoves(rows=rows, handles=(None,) * size, states=(0,) * size, stacks=((),) * size)
    for batch in (plain, _filtered(plain)):
        edited = replace(batch, is_edited=True)
        yield batch, NO_CHOICE
        yield edited, TokenChoice(masks)
        yield edited, TokenChoice(masks, edits)
        if has_grammars:
            yield replace(batch, grammar_moves=moves, is_constrained=True), NO_CHOICE
            yield replace(edited, grammar_moves=moves, is_constrained=True), TokenChoice(None, edits)


def _filtered(batch: Batch) -> Batch:
    return replace(batch, sampling=_sampling(batch.size, top_p=0.9))


def _runner(model: RehearsedModel, shapes: ModelConfig, device: Device, *, plans_prompts: bool = False) -> ModelRunner:
    context = BuildContext(model.dtype, device.torch_device, device.ops)
    decoder: CausalModel = MODELS.load(shapes.architecture)(shapes, context=context)
    assert isinstance(decoder, torch.nn.Module)
    pack_linears(decoder)
    pool = TokenToKVPool(shapes, num_slots=_LENGTH, dtype=model.dtype, device=device.torch_device)
    table = SlotTable(num_rows=model.num_rows, context_length=shapes.context_length, device=device)
    attention: AttentionBackend = (
        _PlannedPrompts(pool, table)
        if plans_prompts
        else ATTENTION_BACKENDS.load(_ATTENTION)(pool=pool, slot_table=table, ops=device.ops)
    )
    sampler = SAMPLERS.load(device.sampling_backends[0])(device)
    return ModelRunner(
        decoder,
        attention=attention,
        slot_table=table,
        device=device,
        processors=LogitProcessors({}),
        sampler=sampler,
    )


class _PlannedPrompts:
    """See `AttentionBackend`; FlashInfer's, with nothing where the library's own kernels would be.

    Args:
        pool: Keys and values.
        slot_table: Slots by row and position.
    """

    captured = None

    def __init__(self, pool: TokenToKVPool, slot_table: SlotTable) -> None:
        # Imported here: it needs Triton, which a CPU does without.
        from sgl_runtime.attention.flashinfer_attention import PrefillPlanner

        self._planner = PrefillPlanner(pool, slot_table, ragged=[_NoLibrary()], paged=[_NoLibrary()])

    def prepare(self, forward_batch: ForwardBatch) -> Attend:
        """See `AttentionBackend`; however small the pass is."""
        run = next(shared_runs(forward_batch.batch), None)
        return self._planner.plan(forward_batch) if run is None else self._planner.plan_behind(run, forward_batch)


class _NoLibrary:
    """Takes the calls of a wrapper of FlashInfer."""

    def plan(self, *arguments: object, **settings: object) -> None:
        """Plan nothing."""

    def run(self, *arguments: object, **settings: object) -> None:
        """Attend nothing."""


def _run(runner: ModelRunner, batch: Batch, choice: TokenChoice = NO_CHOICE) -> None:
    runner.sample(batch, runner.forward(batch), choice)


def _batch(kind: str, rows: np.ndarray, prefix_len: int, num_new: int) -> Batch:
    size = len(rows)
    return Batch(
        kind="extend" if kind == "extend" else "decode",
        row_ids=rows,
        prefix_lens=np.full(size, prefix_len, dtype=np.int32),
        extend_lens=np.full(size, num_new, dtype=np.int32),
        input_ids=np.zeros(size * num_new, dtype=np.int64),
        slot_ids=np.zeros(size * num_new, dtype=np.int32),
        changed_slots=(),
        samples=np.ones(size, dtype=np.bool_),
        sampling=_sampling(size),
        wants_logprob=np.ones(size, dtype=np.bool_),
        logprob_starts=np.full(size, -1, dtype=np.int32),
    )


def _sampling(size: int, *, top_p: float = 1.0) -> SamplingBatch:
    return SamplingBatch(
        temperatures=np.ones(size, dtype=np.float32),
        top_ps=np.full(size, top_p, dtype=np.float32),
        top_ks=np.full(size, -1, dtype=np.int32),
        min_ps=np.zeros(size, dtype=np.float32),
        uniforms=np.zeros(size, dtype=np.float64),
    )
