"""Llama, and Qwen3, which norms each head of queries and keys besides.

Config reading is ModelConfig's; this page holds layer, decoder, model and weight names.
"""

from collections.abc import Iterable

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
from sgl_runtime.models.finish_loading import make_up, pack_linears
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

    def forward(self, x: Tensor, rotary: Rotary, attend: Attend, wanted: Tensor | None = None) -> Tensor:
        """The residual stream (T, C) with what both blocks add to it; x may be overwritten.

        With `wanted`, (R,) places, it goes on at these alone, (R, C).
        """
        x = self.attention(x, self.input_norm, rotary, attend, wanted)
        total: Tensor = self.mlp(x, self.mlp_norm)
        return total


class LlamaDecoder(nn.Module):
    """Everything from tokens to hidden states.

    Args:
        config: Shapes.
        context: Build context.

    Source: arXiv:2302.13971; grouped heads, arXiv:2305.13245.
    """

    def __init__(self, config: ModelConfig, *, context: BuildContext) -> None:
        super().__init__()
        self.embedding = context.parameter(config.vocab_size, config.hidden_size)
        self._rotary = RotaryEmbedding(
            config.rope, head_dim=config.head_dim, num_positions=config.context_length, context=context
        )
        self.layers = nn.ModuleList(
            LlamaLayer(config, layer_id=index, context=context) for index in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, eps=config.norm_eps, context=context)

    def embed(self, input_ids: Tensor) -> Tensor:
        """See `CausalModel`."""
        return F.embedding(input_ids, self.embedding)

    def forward(self, embedded: Tensor, positions: Tensor, attend: Attend, wanted: Tensor | None = None) -> Tensor:
        """Hidden states after the last norm, (T, C), of (T, C) embeddings, which may be overwritten.

        With `wanted` those at (R,) places, (R, C).  Of all others the last layer needs keys and values and nothing
        more: a prompt is spared most of a layer.
        """
        rotary = self._rotary.tables(positions)
        x = embedded
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            x = layer(x, rotary, attend, wanted if index == last else None)
        normed: Tensor = self.norm(x)
        return normed

    def weight_map(self, *, optional: Iterable[str] = ()) -> WeightMap:
        """Where its weights go.

        Args:
            optional: Names that may come and are not used.
        """
        unused = [f"model.layers.{i}.self_attn.rotary_emb.inv_freq" for i in range(len(self.layers))]
        names = WeightMap(optional=[*unused, *optional])
        names.add("model.embed_tokens.weight", self.embedding)
        names.add("model.norm.weight", self.norm.weight)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, LlamaLayer)
            _add_layer(names, f"model.layers.{index}.", layer)
        return names


class LlamaForCausalLM(nn.Module):
    """See `CausalModel`.

    Args:
        config: Shapes.
        context: Build context.
    """

    def __init__(self, config: ModelConfig, *, context: BuildContext) -> None:
        super().__init__()
        self._ties = config.tie_embeddings
        self.decoder = LlamaDecoder(config, context=context)
        self.head = Linear(config.hidden_size, config.vocab_size, bias=False, context=context)

    def embed(self, input_ids: Tensor) -> Tensor:
        """See `CausalModel`."""
        return self.decoder.embed(input_ids)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        attend: Attend,
        embedded: Tensor | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """See `CausalModel`."""
        begun = self.embed(input_ids) if embedded is None else embedded
        hidden: Tensor = self.decoder(begun, positions, attend, wanted)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """See `CausalModel`."""
        logits: Tensor = self.head(hidden)
        return logits

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See `CausalModel`."""
        names = self.decoder.weight_map(optional=["lm_head.weight"])
        if not self._ties:
            names.add("lm_head.weight", self.head.weight)
        names.load(weights)
        self._finish_loading()

    def make_up_weights(self) -> None:
        """See `CausalModel`."""
        make_up(self)
        self._finish_loading()

    def _finish_loading(self) -> None:
        if self._ties:
            self.head.weight.data = self.decoder.embedding.data
        pack_linears(self)


def _add_layer(names: WeightMap, prefix: str, layer: LlamaLayer) -> None:
    names.add(f"{prefix}input_layernorm.weight", layer.input_norm.weight)
    names.add(f"{prefix}post_attention_layernorm.weight", layer.mlp_norm.weight)
    for name, norm in (("q_norm", layer.attention.q_norm), ("k_norm", layer.attention.k_norm)):
        if norm is not None:
            names.add(f"{prefix}self_attn.{name}.weight", norm.weight)
    names.add_merged(f"{prefix}self_attn.", ("q_proj", "k_proj", "v_proj"), layer.attention.qkv_proj)
    names.add_merged(f"{prefix}mlp.", ("gate_proj", "up_proj"), layer.mlp.gate_up_proj)
    names.add_linear(f"{prefix}self_attn.o_proj", layer.attention.o_proj)
    names.add_linear(f"{prefix}mlp.down_proj", layer.mlp.down_proj)
