"""Llama and Qwen3 as makers of vectors: without the head that generates, with one that classifies, or with none."""

from collections.abc import Iterable

from torch import Tensor, nn

from sgl_runtime.attention.base import Attend
from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.layers.linear import Linear
from sgl_runtime.model_store.model_config import ModelConfig
from sgl_runtime.models.finish_loading import make_up, pack_linears
from sgl_runtime.models.llama import LlamaDecoder


class LlamaPooling(nn.Module):
    """See `PoolingModel`.

    Args:
        config: Shapes.
        num_labels: Classes of the head; None where the vector is an embedding.
        context: Build context.
    """

    def __init__(self, config: ModelConfig, *, num_labels: int | None, context: BuildContext) -> None:
        super().__init__()
        self.decoder = LlamaDecoder(config, context=context)
        self.score = None
        if num_labels is not None:
            self.score = Linear(config.hidden_size, num_labels, bias=False, context=context)

    def forward(self, input_ids: Tensor, positions: Tensor, attend: Attend, segments: Tensor | None = None) -> Tensor:
        """See `PoolingModel`."""
        assert segments is None, "a decoder does not tell two texts apart"
        hidden: Tensor = self.decoder(self.decoder.embed(input_ids), positions, attend)
        return hidden

    def vectors(self, pooled: Tensor) -> Tensor:
        """See `PoolingModel`."""
        if self.score is None:
            return pooled
        vectors: Tensor = self.score(pooled)
        return vectors

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See `LoadableModel`; names may lack the prefix that a model with a head has."""
        names = self.decoder.weight_map(optional=["lm_head.weight"])
        if self.score is not None:
            names.add("score.weight", self.score.weight)
        own = ("model.", "lm_head.", "score.")
        names.load((name if name.startswith(own) else f"model.{name}", value) for name, value in weights)
        pack_linears(self)

    def make_up_weights(self) -> None:
        """See `LoadableModel`."""
        make_up(self)
        pack_linears(self)
