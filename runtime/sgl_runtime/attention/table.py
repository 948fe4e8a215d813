"""The tables of attention backends."""

from sgl_runtime.registry import Registry

ATTENTION_BACKENDS = Registry(
    "attention backend",
    {
        "flashinfer": "sgl_runtime.attention.flashinfer_attention:FlashInferAttention",
        "invariant": "sgl_runtime.attention.invariant:InvariantAttention",
        "reference": "sgl_runtime.attention.reference:ReferenceAttention",
        "triton": "sgl_runtime.attention.triton_attention:TritonAttention",
    },
)

CONDITIONS = Registry(
    "attention backend with conditions",
    {"flashinfer": "sgl_runtime.device.flashinfer_library:why_no_prefill"},
)
"""Backends that not every machine and model can use: a function of dtype, head_dim and device says why, or None."""
