"""The shapes of a model of 8 billion weights."""

from typing import Any

SHAPES: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 131_072,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rope_theta": 500_000.0,
}
