"""The table of attention backends."""

from sgl_runtime.registry import Registry

ATTENTION_BACKENDS = Registry("attention backend", {"reference": "sgl_runtime.attention.reference:ReferenceAttention"})
