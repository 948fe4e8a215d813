"""A model of a few thousand weights, on any device, with everything that runs its passes."""

from collections.abc import Iterator
from typing import Any

import torch

from sgl_runtime.attention.table import ATTENTION_BACKENDS, CONDITIONS
from sgl_runtime.device.base import Device
from sgl_runtime.forward.slot_table import SlotTable
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool
from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.model_runner.logit_processors import LogitProcessors
from sgl_runtime.model_runner.model_runner import ModelRunner
from sgl_runtime.model_runner.sampler_table import SAMPLERS
from sgl_runtime.model_store.model_config import ModelConfig
from sgl_runtime.models.llama import LlamaForCausalLM

SHAPES: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
NUM_SLOTS, NUM_ROWS = 96, 5


def make_runner(
    device: Device, *, num_slots: int = NUM_SLOTS, context_length: int = 64, sampling_backend: str | None = None
) -> ModelRunner:
    config = ModelConfig.from_json(SHAPES | {"max_position_embeddings": context_length}, source="test")
    model = LlamaForCausalLM(config, context=BuildContext(torch.float32, device.torch_device, device.ops))
    model.load_weights(weights())
    pool = TokenToKVPool(config, num_slots=num_slots, dtype=torch.float32, device=device.torch_device)
    table = SlotTable(num_rows=NUM_ROWS, context_length=context_length, device=device)
    # What has conditions on its shapes is tested with larger ones.
    name = next(name for name in device.attention_backends if name not in CONDITIONS.names())
    backend = ATTENTION_BACKENDS.load(name)
    attention = backend(pool=pool, slot_table=table, ops=device.ops)
    sampler = SAMPLERS.load(sampling_backend or device.sampling_backends[0])(device)
    processors = LogitProcessors({})
    runner = ModelRunner(
        model, attention=attention, slot_table=table, device=device, processors=processors, sampler=sampler
    )
    runner.capture_graphs(4, spare_slot=pool.spare_slot)
    return runner


def weights() -> Iterator[tuple[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    width, inner, dim = SHAPES["hidden_size"], SHAPES["intermediate_size"], SHAPES["head_dim"]
    heads, groups = SHAPES["num_attention_heads"] * dim, SHAPES["num_key_value_heads"] * dim
    yield "model.embed_tokens.weight", torch.randn(SHAPES["vocab_size"], width, generator=generator)
    yield "model.norm.weight", torch.ones(width)
    linears = {
        "self_attn.q_proj": (heads, width),
        "self_attn.k_proj": (groups, width),
        "self_attn.v_proj": (groups, width),
        "self_attn.o_proj": (width, heads),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    norms = {
        "input_layernorm": width,
        "post_attention_layernorm": width,
        "self_attn.q_norm": dim,
        "self_attn.k_norm": dim,
    }
    for layer in range(SHAPES["num_hidden_layers"]):
        for name, shape in linears.items():
            yield f"model.layers.{layer}.{name}.weight", 0.2 * torch.randn(*shape, generator=generator)
        for name, size in norms.items():
            yield f"model.layers.{layer}.{name}.weight", 1 + 0.2 * torch.randn(size, generator=generator)
