"""Llama, and Qwen3, which norms each head of queries and keys besides.

Config reading is ModelConfig's; this page holds layer, model and weight names.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgl_runtime.attention.base import Attend, Rotary
from sgl_runtime.layers.attention import SelfAttention
from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.layers.linear import Linear
from sgl_runtime.layers.mlp import GatedMLP
from sgl_runtime.layers.norm import RMSNorm
from sgl_runtime.layers.rotary import RotaryEmbedding
from sgl_runtime.model_store.model_config import ModelConfig
from sgl_runtime.models.weight_map import WeightMap


class LlamaLayer(nn.Module):
    """One decoder layer.

    Args:
        config: Shapes.
        layer_id: Its number.
        context: Build context.
    """

    def __init__(self, config: ModelConfig, *, layer_id: int, context: BuildContext) -> None:
        super().__init__()
        self.input_norm = RMSNorm(config.hidden_size, eps=config.norm_eps, context=context)
        self.attention = SelfAttention(config, layer_id=layer_id, context=context)
        self.mlp_norm = RMSNorm(config.hidden_size, eps=config.norm_eps, context=context)
        self.mlp = GatedMLP(config, context=context)

    def forward(self, x: Tensor | None, residual: Tensor, rotary: Rotary, attend: Attend) -> tuple[Tensor, Tensor]:
        """Add x (None in the first layer) to the residual stream, run both blocks.

        Returns:
            Output of the feed-forward block, not yet added, and the residual stream, (T, C) each.
        """
        if x is None:
            normed = self.input_norm(residual)
        else:
            normed, residual = self.input_norm.add(x, residual)
        normed, residual = self.mlp_norm.add(self.attention(normed, rotary, attend), residual)
        return self.mlp(normed), residual


class LlamaForCausalLM(nn.Module):
    """See `CausalModel`.

    Args:
        config: Shapes.
        context: Build context.

    Source: arXiv:2302.13971; grouped heads, arXiv:2305.13245.
    """

    def __init__(self, config: ModelConfig, *, context: BuildContext) -> None:
        super().__init__()
        self._config = config
        self.embedding = context.parameter(config.vocab_size, config.hidden_size)
        self.head = Linear(config.hidden_size, config.vocab_size, bias=False, context=context)
        self._rotary = RotaryEmbedding(
            config.rope, head_dim=config.head_dim, num_positions=config.context_length, context=context
        )
        self.layers = nn.ModuleList(
            LlamaLayer(config, layer_id=index, context=context) for index in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, eps=config.norm_eps, context=context)

    def forward(self, input_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """See `CausalModel`."""
        residual = F.embedding(input_ids, self.embedding)
        rotary = self._rotary.tables(positions)
        x = None
        for layer in self.layers:
            x, residual = layer(x, residual, rotary, attend)
        assert x is not None, "a model has at least one layer"
        normed, _ = self.norm.add(x, residual)
        return normed

    def logits(self, hidden: Tensor) -> Tensor:
        """See `CausalModel`."""
        logits: Tensor = self.head(hidden)
        return logits

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See `CausalModel`."""
        optional = [f"model.layers.{i}.self_attn.rotary_emb.inv_freq" for i in range(self._config.num_layers)]
        names = WeightMap(optional=[*optional, "lm_head.weight"])
        names.add("model.embed_tokens.weight", self.embedding)
        names.add("model.norm.weight", self.norm.weight)
        if not self._config.tie_embeddings:
            names.add("lm_head.weight", self.head.weight)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, LlamaLayer)
            _add_layer(names, f"model.layers.{index}.", layer)
        names.load(weights)
        self._finish_loading()

    def make_up_weights(self) -> None:
        """See `CausalModel`."""
        generator = torch.Generator(self.embedding.device).manual_seed(0)
        for parameter in self.parameters():
            if parameter.dim() == 1:
                parameter.data.fill_(1.0)
            else:
                parameter.data.normal_(0.0, 0.02, generator=generator)
        self._finish_loading()

    def _finish_loading(self) -> None:
        if self._config.tie_embeddings:
            self.head.weight.data = self.embedding.data
        pack_linears(self)


def pack_linears(model: nn.Module) -> None:
    """Pack every linear of a loaded model."""
    for module in model.modules():
        if isinstance(module, Linear):
            module.pack()


def _add_layer(names: WeightMap, prefix: str, layer: LlamaLayer) -> None:
    names.add(f"{prefix}input_layernorm.weight", layer.input_norm.weight)
    names.add(f"{prefix}post_attention_layernorm.weight", layer.mlp_norm.weight)
    for name, norm in (("q_norm", layer.attention.q_norm), ("k_norm", layer.attention.k_norm)):
        if norm is not None:
            names.add(f"{prefix}self_attn.{name}.weight", norm.weight)
    merged = [
        (f"{prefix}self_attn.", ("q_proj", "k_proj", "v_proj"), layer.attention.qkv_proj),
        (f"{prefix}mlp.", ("gate_proj", "up_proj"), layer.mlp.gate_up_proj),
    ]
    for group, parts, linear in merged:
        for index, part in enumerate(parts):
            names.add(f"{group}{part}.weight", linear.part(index, "weight"))
            if linear.bias is not None:
                names.add(f"{group}{part}.bias", linear.part(index, "bias"))
    for name, plain in (("self_attn.o_proj", layer.attention.o_proj), ("mlp.down_proj", layer.mlp.down_proj)):
        names.add(f"{prefix}{name}.weight", plain.weight)
        names.add(f"{prefix}{name}.bias", plain.bias)
