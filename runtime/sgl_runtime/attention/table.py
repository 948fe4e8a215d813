"""The table of attention backends."""

from sgl_runtime.registry import Registry

ATTENTION_BACKENDS = Registry(
    "attention backend",
    {
        "invariant": "sgl_runtime.attention.invariant:InvariantAttention",
        "reference": "sgl_runtime.attention.reference:ReferenceAttention",
        "triton": "sgl_runtime.attention.triton_attention:TritonAttention",
    },
)
