"""A Llama in plain torch over whole texts: no pool, no batch, no kernel of ours; any type of numbers.

It takes the weights of the model that it stands beside, a layer at a time, so that a second copy need not fit.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.model_store.model_config import ModelConfig
from sgl_runtime.models.llama import LlamaForCausalLM


class PlainLlama:
    """Logits of a model without biases, head norms and scalings of its rotation.

    Args:
        model: Whose weights are taken.
        config: Its shapes.
        dtype: Of all numbers between operations; norms, rotation and attention are computed in float32 at least.
    """

    def __init__(self, model: LlamaForCausalLM, config: ModelConfig, dtype: torch.dtype) -> None:
        assert torch.get_float32_matmul_precision() == "highest", "float32 products must be of float32"
        self._model, self._config, self._dtype = model, config, dtype
        self._wide = torch.promote_types(dtype, torch.float32)

    @torch.inference_mode()
    def logits(self, texts: Sequence[NDArray[np.int64]], wanted: Sequence[Sequence[int]]) -> list[Tensor]:
        """Logits at some positions of each text.

        Args:
            texts: Ids.
            wanted: Positions.

        Returns:
            (len(wanted), V) of each text.
        """
        decoder = self._model.decoder
        device = decoder.embedding.device
        ids = torch.from_numpy(np.concatenate(texts)).to(device)
        lengths = [len(text) for text in texts]
        rotary = self._rotary(max(lengths), device)
        x = decoder.embedding[ids].to(self._dtype)
        for layer in decoder.layers:
            qkv = self._linear(self._norm(x, layer.input_norm.weight), layer.attention.qkv_proj.packed)
            parts = [self._attended(part, rotary) for part in qkv.split(lengths)]
            x = x + self._linear(torch.cat(parts), layer.attention.o_proj.packed)
            gate_up = self._linear(self._norm(x, layer.mlp_norm.weight), layer.mlp.gate_up_proj.packed)
            gate, up = gate_up.chunk(2, dim=-1)
            x = x + self._linear(F.silu(gate) * up, layer.mlp.down_proj.packed)
        starts = np.cumsum(lengths) - lengths
        places = np.concatenate(
            [start + np.array(at, dtype=np.int64) for start, at in zip(starts, wanted, strict=True)]
        )
        hidden = self._norm(x[torch.from_numpy(places).to(device)], decoder.norm.weight)
        return list(self._linear(hidden, self._model.head.packed).split([len(at) for at in wanted]))

    def _linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight.to(self._dtype).T

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.to(self._wide)
        scaled = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self._config.norm_eps)
        return (scaled * weight.to(self._wide)).to(self._dtype)

    def _rotary(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """(length, 1, D / 2) cosines and sines."""
        dim = self._config.head_dim
        steps = self._config.rope.theta ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angles = torch.outer(torch.arange(length, dtype=torch.float64), steps).unsqueeze(1)
        cos, sin = (part.to(device, self._dtype).to(self._wide) for part in (angles.cos(), angles.sin()))
        return cos, sin

    def _attended(self, qkv: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """(n, H * D) of one text's (n, (H + 2 G) * D) queries, keys and values."""
        heads, groups, dim = self._config.num_heads, self._config.num_kv_heads, self._config.head_dim
        length = len(qkv)
        every = qkv.view(length, heads + 2 * groups, dim).to(self._wide)
        cos, sin = (part[:length] for part in rotary)
        left, right = every[:, : heads + groups].chunk(2, dim=-1)
        turned = torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1).to(self._dtype).to(self._wide)
        queries = turned[:, :heads].view(length, groups, heads // groups, dim)
        keys, values = turned[:, heads:], every[:, heads + groups :]
        scores = torch.einsum("tgsd,ngd->gstn", queries, keys) * dim**-0.5
        seen = torch.ones(length, length, dtype=torch.bool, device=qkv.device).tril()
        weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
        return torch.einsum("gstn,ngd->tgsd", weights, values).reshape(length, heads * dim).to(self._dtype)
