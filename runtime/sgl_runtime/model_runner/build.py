"""Builds the device half: device, model with its weights, pool, attention, executor."""

from dataclasses import dataclass

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
from sgl_runtime.model_runner.logit_processors import LogitProcessors
from sgl_runtime.model_runner.model_runner import ModelRunner
from sgl_runtime.model_runner.weights import iter_weights
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.models.base import CausalModel
from sgl_runtime.models.table import MODELS


@dataclass(frozen=True)
class BuiltModel:
    """The device half and the numbers that the host needs of it."""

    runner: ModelRunner
    num_slots: int
    num_host_slots: int
    kv_cache_bytes: int
    context_length: int
    weight_dtype: str
    device: str
    attention_backend: str


def build_model(config: RuntimeConfig, source: ModelSource) -> BuiltModel:
    """Load a model and give it its memory.

    Raises:
        ConfigError, ModelLoadError: an option or the model is at fault.
    """
    # Before anything is loaded: what is wrong with them is known at once.
    processors = LogitProcessors(logit_processor_paths(config.features.custom_logit_processor))
    device = select_device(
        config.device.device,
        num_threads=config.device.num_threads,
        deterministic=config.features.enable_deterministic_inference,
    )
    name = _attention_name(config.device.attention_backend, device)
    dtype = _dtype(config.model.dtype, device)
    model = load_model(source, dtype=dtype, device=device, load_format=config.model.load_format)
    shapes = source.config
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
    if asked is not None and asked > shapes.context_length:
        raise ConfigError(f"context_length is {asked}; the model was made for at most {shapes.context_length}")
    context_length = resolve_context_length(asked, model_limit=shapes.context_length, num_slots=cache.max_total_tokens)
    pool = TokenToKVPool(shapes, num_slots=cache.max_total_tokens, dtype=dtype, device=device.torch_device)
    num_host_slots = host_slots(cache, slot_bytes=slot_bytes)
    host_pool = HostKVPool(pool, num_slots=num_host_slots, device=device) if num_host_slots else None
    rows = config.scheduler.max_running_requests
    slot_table = SlotTable(num_rows=rows, context_length=context_length, device=device)
    attention: AttentionBackend = ATTENTION_BACKENDS.load(name)(pool=pool, slot_table=slot_table, ops=device.ops)
    runner = ModelRunner(
        model,
        attention=attention,
        slot_table=slot_table,
        device=device,
        processors=processors,
        host_pool=host_pool,
    )
    if not config.device.disable_cuda_graph:
        runner.capture_graphs(min(rows, config.device.cuda_graph_max_bs), spare_slot=pool.spare_slot)
    return BuiltModel(
        runner=runner,
        num_slots=cache.max_total_tokens,
        num_host_slots=num_host_slots,
        kv_cache_bytes=slot_bytes * cache.max_total_tokens,
        context_length=context_length,
        weight_dtype=str(dtype).removeprefix("torch."),
        device=device.torch_device.type,
        attention_backend=name,
    )


def load_model(source: ModelSource, *, dtype: torch.dtype, device: Device, load_format: str = "auto") -> CausalModel:
    """Build a model and fill in its weights, from its files or (`dummy`) made up."""
    context = BuildContext(dtype, device.torch_device, device.ops)
    model: CausalModel = MODELS.load(source.config.architecture)(source.config, context=context)
    if load_format == "dummy":
        model.make_up_weights()
    else:
        model.load_weights(iter_weights(source))
    return model


def _attention_name(asked: str, device: Device) -> str:
    """The attention backend that is meant.

    Raises:
        ConfigError: the device does not run it.
    """
    name = device.attention_backends[0] if asked == "auto" else asked
    if name not in device.attention_backends:
        allowed = ", ".join(("auto", *device.attention_backends))
        raise ConfigError(
            f"attention_backend is {name!r}; on device {device.torch_device.type} it must be one of {allowed}"
        )
    return name


def _dtype(name: str, device: Device) -> torch.dtype:
    named = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return device.default_dtype if name == "auto" else named[name]
