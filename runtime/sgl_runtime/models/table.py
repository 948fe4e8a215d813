"""The table of models, by the class name in their config."""

from sgl_runtime.registry import Registry

MODELS = Registry(
    "model architecture",
    {
        "LlamaForCausalLM": "sgl_runtime.models.llama:LlamaForCausalLM",
        "Qwen3ForCausalLM": "sgl_runtime.models.llama:LlamaForCausalLM",
    },
)
