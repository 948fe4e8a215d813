"""Builds the device half of a model that makes vectors."""

import torch

from sgl_runtime.attention.both_ways import BothWaysAttention
from sgl_runtime.attention.table import ATTENTION_BACKENDS
from sgl_runtime.config import RuntimeConfig
from sgl_runtime.config_values import ENCODER_SLOTS, resolve_context_length
from sgl_runtime.device.base import Device
from sgl_runtime.errors import ConfigError
from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.model_info import PoolingInfo
from sgl_runtime.model_runner.backend_choice import attention_name
from sgl_runtime.model_runner.build import (
    BuiltModel,
    build_memory,
    built_around,
    checked_context_length,
    open_device,
    weight_dtype,
)
from sgl_runtime.model_runner.pooling_runner import PoolingRunner
from sgl_runtime.model_runner.weights import iter_weights
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.models.base import PoolingModel
from sgl_runtime.models.table import POOLING_MODELS
from sgl_runtime.stopwatch import Stopwatch


def build_pooling_model(
    config: RuntimeConfig, source: ModelSource, pooling: PoolingInfo, watch: Stopwatch
) -> BuiltModel:
    """Load a model and give it its memory.

    Args:
        config: All sections.
        source: The model.
        pooling: What it does with a text.
        watch: Gets the parts weights and memory.

    Raises:
        ConfigError, ModelLoadError: an option or the model is at fault.
    """
    device = open_device(config)
    dtype = weight_dtype(config.model.dtype, device)
    if source.is_encoder:
        with watch.part("weights"):
            return _build_encoder(config, source, pooling, dtype=dtype, device=device)
    name = attention_name(config.device.attention_backend, device, dtype=dtype, head_dim=source.config.head_dim)
    with watch.part("weights"):
        model = _load(source, source.config, pooling, dtype=dtype, device=device, load_format=config.model.load_format)
    with watch.part("memory"):
        memory = build_memory(config, source.config, dtype=dtype, device=device, max_length=pooling.max_length)
    attention = ATTENTION_BACKENDS.load(name)(pool=memory.pool, slot_table=memory.slot_table, ops=device.ops)
    runner = PoolingRunner(
        model, attention=attention, device=device, slot_table=memory.slot_table, host_pool=memory.host_pool
    )
    return built_around(runner, memory, dtype=dtype, device=device, attention_name=name)


def _build_encoder(
    config: RuntimeConfig, source: ModelSource, pooling: PoolingInfo, *, dtype: torch.dtype, device: Device
) -> BuiltModel:
    if config.features.enable_deterministic_inference:
        raise ConfigError("enable_deterministic_inference is true; with an encoder it must be false")
    model = _load(source, source.encoder, pooling, dtype=dtype, device=device, load_format=config.model.load_format)
    asked = checked_context_length(config.model.context_length, source.encoder.context_length)
    num_slots = config.cache.max_total_tokens or ENCODER_SLOTS
    limit = min(pooling.max_length or source.encoder.context_length, source.encoder.context_length)
    return BuiltModel(
        runner=PoolingRunner(model, attention=BothWaysAttention(), device=device),
        num_slots=num_slots,
        num_host_slots=0,
        kv_cache_bytes=0,
        context_length=resolve_context_length(asked, model_limit=limit, num_slots=num_slots),
        weight_dtype=str(dtype).removeprefix("torch."),
        device=device.torch_device.type,
        attention_backend="both_ways",
    )


def _load(
    source: ModelSource, shapes: object, pooling: PoolingInfo, *, dtype: torch.dtype, device: Device, load_format: str
) -> PoolingModel:
    context = BuildContext(dtype, device.torch_device, device.ops)
    num_labels = None if pooling.labels is None else len(pooling.labels)
    build = POOLING_MODELS.load(source.outline.architecture)
    model: PoolingModel = build(shapes, num_labels=num_labels, context=context)
    if load_format == "dummy":
        model.make_up_weights()
    else:
        model.load_weights(iter_weights(source, device))
    return model
