"""Builds the device half: device, model with its weights, pool, attention, executor."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import torch

from sgl_runtime.attention.base import AttentionBackend
from sgl_runtime.attention.table import ATTENTION_BACKENDS
from sgl_runtime.config import RuntimeConfig, logit_processor_paths
from sgl_runtime.config_values import host_slots, resolve_cache, resolve_context_length
from sgl_runtime.device.base import Device, select_device
from sgl_runtime.errors import ConfigError
from sgl_runtime.forward.host_kv_pool import HostKVPool
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool
from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.model_runner.backend_choice import attention_name, sampler_name
from sgl_runtime.model_runner.logit_processors import LogitProcessors
from sgl_runtime.model_runner.model_runner import ModelRunner
from sgl_runtime.model_runner.pass_runner import PassRunner
from sgl_runtime.model_runner.rehearsal import RehearsedModel, rehearse
from sgl_runtime.model_runner.sampler_table import SAMPLERS
from sgl_runtime.model_runner.weights import iter_weights
from sgl_runtime.model_store.model_config import ModelConfig
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.models.base import CausalModel
from sgl_runtime.models.table import MODELS
from sgl_runtime.stopwatch import Stopwatch

TUNED_ROWS = (16, 32, 64, 96, 128, 192, 256)
"""Numbers of rows of decode passes for which the fastest way to compute each linear is looked for."""


@dataclass(frozen=True)
class BuiltModel:
    """The device half and the numbers that the host needs of it."""

    runner: PassRunner
    num_slots: int
    num_host_slots: int
    kv_cache_bytes: int
    context_length: int
    weight_dtype: str
    device: str
    attention_backend: str


def build_model(
    config: RuntimeConfig, source: ModelSource, watch: Stopwatch, *, meanwhile: Callable[[], object] = lambda: None
) -> BuiltModel:
    """Load a model and give it its memory.

    Args:
        config: All sections.
        source: The model.
        watch: Gets the parts device, weights, memory, kernels, products and graphs.
        meanwhile: What else a start has to do; it is called once kernels are on their way.

    Raises:
        ConfigError, ModelLoadError: an option or the model is at fault.
    """
    # Before anything is loaded: what is wrong with them is known at once.
    processors = LogitProcessors(logit_processor_paths(config.features.custom_logit_processor))
    with watch.part("device"):
        device = open_device(config)
    dtype = weight_dtype(config.model.dtype, device)
    sampler = SAMPLERS.load(sampler_name(config.device.sampling_backend, device))(device)
    graph_rows = 0
    if not config.device.disable_cuda_graph:
        graph_rows = min(config.scheduler.max_running_requests, config.device.cuda_graph_max_bs)
    plans_prompts: Future[bool] = Future()
    rehearsed = RehearsedModel(
        shapes=source.config,
        dtype=dtype,
        num_rows=config.scheduler.max_running_requests,
        graph_rows=graph_rows,
        max_grammar_depth=config.grammar.max_grammar_depth,
        plans_prompts=plans_prompts.result,
    )
    wait_for_kernels = device.compile_ahead(partial(rehearse, rehearsed))
    # Asked meanwhile, as FlashInfer takes a second to import.
    name = None
    try:
        name = attention_name(config.device.attention_backend, device, dtype=dtype, head_dim=source.config.head_dim)
    finally:
        plans_prompts.set_result(name == "flashinfer")
    meanwhile()
    with watch.part("weights"):
        model = load_model(source, dtype=dtype, device=device, load_format=config.model.load_format)
    with watch.part("memory"):
        memory = build_memory(config, source.config, dtype=dtype, device=device)
    attention: AttentionBackend = ATTENTION_BACKENDS.load(name)(
        pool=memory.pool, slot_table=memory.slot_table, ops=device.ops
    )
    runner = ModelRunner(
        model,
        attention=attention,
        slot_table=memory.slot_table,
        device=device,
        processors=processors,
        sampler=sampler,
        host_pool=memory.host_pool,
    )
    with watch.part("kernels"):
        wait_for_kernels()
    with watch.part("products"):
        device.ops.tune_linears([count for count in TUNED_ROWS if count <= graph_rows])
    with watch.part("graphs"):
        runner.capture_graphs(graph_rows, spare_slot=memory.pool.spare_slot)
    return built_around(runner, memory, dtype=dtype, device=device, attention_name=name)


def open_device(config: RuntimeConfig) -> Device:
    """The device that a config names.

    Raises:
        ConfigError: there is none, or an option does not go with it.
    """
    return select_device(
        config.device.device,
        num_threads=config.device.num_threads,
        deterministic=config.features.enable_deterministic_inference,
    )


@dataclass(frozen=True)
class KVMemory:
    """Where keys and values lie, and how much of them fits.

    Attributes:
        pool: On the device.
        host_pool: In host memory; None without one.
        slot_table: Slots by row and position.
        num_host_slots: Tokens that fit into the host's pool.
        num_bytes: Size of the device's pool.
        context_length: Most tokens of a request.
    """

    pool: TokenToKVPool
    host_pool: HostKVPool | None
    slot_table: SlotTable
    num_host_slots: int
    num_bytes: int
    context_length: int


def built_around(
    runner: PassRunner, memory: KVMemory, *, dtype: torch.dtype, device: Device, attention_name: str
) -> BuiltModel:
    """A runner whose model keeps keys and values, with the numbers of that memory."""
    return BuiltModel(
        runner=runner,
        num_slots=memory.pool.spare_slot,
        num_host_slots=memory.num_host_slots,
        kv_cache_bytes=memory.num_bytes,
        context_length=memory.context_length,
        weight_dtype=str(dtype).removeprefix("torch."),
        device=device.torch_device.type,
        attention_backend=attention_name,
    )


def build_memory(
    config: RuntimeConfig, shapes: ModelConfig, *, dtype: torch.dtype, device: Device, max_length: int | None = None
) -> KVMemory:
    """Take the memory for keys and values, once the weights are loaded.

    Args:
        config: All sections.
        shapes: Of the model.
        dtype: Type of keys and values.
        device: Where they live.
        max_length: The context limit where none is asked for; that of the model by default.

    Raises:
        ConfigError: the context is longer than the model's, or there is too little memory.
    """
    slot_bytes = TokenToKVPool.slot_bytes(shapes, dtype)
    cache = resolve_cache(
        config.cache,
        free_bytes=device.free_memory_bytes(),
        slot_bytes=slot_bytes,
        slot_limit=device.slot_limit,
        default_fraction=device.default_mem_fraction,
    )
    assert cache.max_total_tokens is not None
    asked = config.model.context_length
    context_length = resolve_context_length(
        checked_context_length(asked, shapes.context_length),
        model_limit=min(max_length or shapes.context_length, shapes.context_length),
        num_slots=cache.max_total_tokens,
    )
    pool = TokenToKVPool(shapes, num_slots=cache.max_total_tokens, dtype=dtype, device=device.torch_device)
    num_host_slots = host_slots(cache, slot_bytes=slot_bytes)
    return KVMemory(
        pool=pool,
        host_pool=HostKVPool(pool, num_slots=num_host_slots, device=device) if num_host_slots else None,
        slot_table=SlotTable(
            num_rows=config.scheduler.max_running_requests, context_length=context_length, device=device
        ),
        num_host_slots=num_host_slots,
        num_bytes=slot_bytes * cache.max_total_tokens,
        context_length=context_length,
    )


def checked_context_length(asked: int | None, model_limit: int) -> int | None:
    """The length that is asked for, None for none.

    Raises:
        ConfigError: it is longer than the model's.
    """
    if asked is not None and asked > model_limit:
        raise ConfigError(f"context_length is {asked}; the model was made for at most {model_limit}")
    return asked


def load_model(source: ModelSource, *, dtype: torch.dtype, device: Device, load_format: str = "auto") -> CausalModel:
    """Build a model and fill in its weights, from its files or (`dummy`) made up."""
    context = BuildContext(dtype, device.torch_device, device.ops)
    model: CausalModel = MODELS.load(source.config.architecture)(source.config, context=context)
    if load_format == "dummy":
        model.make_up_weights()
    else:
        model.load_weights(iter_weights(source, device))
    return model


def weight_dtype(name: str, device: Device) -> torch.dtype:
    """The type of the weights that is meant."""
    named = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return device.default_dtype if name == "auto" else named[name]
