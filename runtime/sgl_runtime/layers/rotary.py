"""Rotary embedding and its scalings."""

import math

import torch
from torch import Tensor

from sgl_runtime.errors import ModelLoadError
from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.model_store.model_config import RopeConfig


class RotaryEmbedding:
    """Cosines and sines of every position, computed once.

    Args:
        rope: Base and scaling.
        head_dim: D.
        num_positions: Positions in the table.
        context: Build context.
    """

    def __init__(self, rope: RopeConfig, *, head_dim: int, num_positions: int, context: BuildContext) -> None:
        positions = torch.arange(num_positions, dtype=torch.float32)
        angles = torch.outer(positions, inverse_frequencies(rope, head_dim))
        self._cos = angles.cos().to(context.device, context.dtype)
        self._sin = angles.sin().to(context.device, context.dtype)

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of these positions, (T, D / 2) each."""
        return self._cos[positions], self._sin[positions]


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """(D / 2,) float32 angular steps.

    Raises:
        ModelLoadError: the scaling is of an unknown type, or lacks a setting.

    Source: arXiv:2104.09864; "llama3" scaling as in Llama 3.1's reference, "linear" as in arXiv:2306.15595.
    """
    frequencies = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    kind = rope.scaling.get("rope_type", "default")
    if kind == "default":
        return frequencies
    if kind == "linear":
        return frequencies / _setting(rope, "factor")
    if kind == "llama3":
        return _llama3(frequencies, rope)
    raise ModelLoadError(f"rotary scaling {kind!r} is not supported; supported: default, linear, llama3")


def _llama3(frequencies: Tensor, rope: RopeConfig) -> Tensor:
    factor, low, high = (_setting(rope, name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    original = _setting(rope, "original_max_position_embeddings")
    wavelengths = 2 * math.pi / frequencies
    share = ((original / wavelengths - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - share) * frequencies / factor + share * frequencies


def _setting(rope: RopeConfig, name: str) -> float:
    value = rope.scaling.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ModelLoadError(f"rotary scaling {rope.scaling['rope_type']!r}: {name} is {value!r}; it must be above 0")
    return float(value)
