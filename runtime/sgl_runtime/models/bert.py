"""BERT: an encoder that makes vectors, with a head that classifies or without."""

from collections.abc import Iterable, Iterator

import torch.nn.functional as F
from torch import Tensor, nn

from sgl_runtime.attention.base import Attend
from sgl_runtime.layers.activations import activation
from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.layers.layer_norm import LayerNorm
from sgl_runtime.layers.linear import Linear, MergedLinear
from sgl_runtime.model_store.encoder_config import EncoderConfig
from sgl_runtime.models.finish_loading import make_up, pack_linears
from sgl_runtime.models.weight_map import WeightMap

_UNUSED = ("cls.", "lm_head.", "embeddings.position_ids", "embeddings.token_type_ids")
"""Beginnings of names of what other uses of the same weights need."""


class BertLayer(nn.Module):
    """One layer: attention and feed-forward, each followed by its norm.

    Args:
        config: Shapes.
        layer_id: Its number.
        context: Build context.
    """

    def __init__(self, config: EncoderConfig, *, layer_id: int, context: BuildContext) -> None:
        super().__init__()
        size = config.hidden_size
        self.qkv_proj = MergedLinear(size, [size] * 3, bias=True, context=context)
        self.o_proj = Linear(size, size, bias=True, context=context)
        self.attention_norm = LayerNorm(size, eps=config.norm_eps, context=context)
        self.up_proj = Linear(size, config.intermediate_size, bias=True, context=context)
        self.down_proj = Linear(config.intermediate_size, size, bias=True, context=context)
        self.mlp_norm = LayerNorm(size, eps=config.norm_eps, context=context)
        self._activation = activation(config.activation)
        self._layer_id = layer_id
        self._heads = config.num_heads

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """(T, C) to (T, C)."""
        qkv = self.qkv_proj(x).view(len(x), 3 * self._heads, -1)
        attended = attend(qkv, None, layer_id=self._layer_id).reshape(len(x), -1)
        x = self.attention_norm(x + self.o_proj(attended))
        normed: Tensor = self.mlp_norm(x + self.down_proj(self._activation(self.up_proj(x))))
        return normed


class Bert(nn.Module):
    """See `PoolingModel`.

    Args:
        config: Shapes.
        num_labels: Classes of the head; None where the vector is an embedding.
        context: Build context.

    Attributes:
        prefix: In front of the names of weights where the model has a head.
        head: Names of the two linears of the head that classifies.

    Source: arXiv:1810.04805.
    """

    prefix = "bert."
    head = ("pooler.dense", "classifier")

    def __init__(self, config: EncoderConfig, *, num_labels: int | None, context: BuildContext) -> None:
        super().__init__()
        size = config.hidden_size
        self.words = context.parameter(config.vocab_size, size)
        self.positions = context.parameter(config.first_position + config.context_length, size)
        self._first_position = config.first_position
        self.segments = context.parameter(config.num_segments, size)
        self.norm = LayerNorm(size, eps=config.norm_eps, context=context)
        self.layers = nn.ModuleList(
            BertLayer(config, layer_id=index, context=context) for index in range(config.num_layers)
        )
        self.dense: Linear | None = None
        self.classifier: Linear | None = None
        if num_labels is not None:
            self.dense = Linear(size, size, bias=True, context=context)
            self.classifier = Linear(size, num_labels, bias=True, context=context)

    def forward(self, input_ids: Tensor, positions: Tensor, attend: Attend, segments: Tensor | None = None) -> Tensor:
        """See `PoolingModel`; `attend` looks both ways."""
        kinds = self.segments[0] if segments is None else F.embedding(segments, self.segments)
        places = F.embedding(positions + self._first_position, self.positions)
        x: Tensor = self.norm(F.embedding(input_ids, self.words) + places + kinds)
        for layer in self.layers:
            x = layer(x, attend)
        return x

    def vectors(self, pooled: Tensor) -> Tensor:
        """See `PoolingModel`."""
        if self.dense is None or self.classifier is None:
            return pooled
        vectors: Tensor = self.classifier(self.dense(pooled).tanh())
        return vectors

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See `LoadableModel`; names may lack the prefix that a model with a head has."""
        names = WeightMap(optional=["pooler.dense.weight", "pooler.dense.bias"])
        for name, target in (("word", self.words), ("position", self.positions), ("token_type", self.segments)):
            names.add(f"embeddings.{name}_embeddings.weight", target)
        _add_norm(names, "embeddings.LayerNorm", self.norm)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, BertLayer)
            _add_layer(names, f"encoder.layer.{index}.", layer)
        if self.dense is not None and self.classifier is not None:
            names.add_linear(self.head[0], self.dense)
            names.add_linear(self.head[1], self.classifier)
        names.load(self._used(weights))
        pack_linears(self)

    def make_up_weights(self) -> None:
        """See `LoadableModel`."""
        make_up(self)
        pack_linears(self)

    def _used(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        for name, value in weights:
            short = name.removeprefix(self.prefix)
            if not short.startswith(_UNUSED):
                yield short, value


def _add_norm(names: WeightMap, name: str, norm: LayerNorm) -> None:
    names.add(f"{name}.weight", norm.weight)
    names.add(f"{name}.bias", norm.bias)


def _add_layer(names: WeightMap, prefix: str, layer: BertLayer) -> None:
    names.add_merged(f"{prefix}attention.self.", ("query", "key", "value"), layer.qkv_proj)
    names.add_linear(f"{prefix}attention.output.dense", layer.o_proj)
    _add_norm(names, f"{prefix}attention.output.LayerNorm", layer.attention_norm)
    names.add_linear(f"{prefix}intermediate.dense", layer.up_proj)
    names.add_linear(f"{prefix}output.dense", layer.down_proj)
    _add_norm(names, f"{prefix}output.LayerNorm", layer.mlp_norm)
