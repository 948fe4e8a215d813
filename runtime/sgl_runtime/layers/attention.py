"""Self-attention around the `attend` of the pass."""

from torch import Tensor, nn

from sgl_runtime.attention.base import Attend
from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.layers.linear import Linear, MergedLinear
from sgl_runtime.layers.rotary import RotaryEmbedding
from sgl_runtime.model_store.model_config import ModelConfig


class SelfAttention(nn.Module):
    """Merged projections, rotary, attend, output projection.

    Args:
        config: Shapes.
        layer_id: Which layer of the pool.
        rotary: Shared by all layers.
        context: Build context.
    """

    def __init__(self, config: ModelConfig, *, layer_id: int, rotary: RotaryEmbedding, context: BuildContext) -> None:
        super().__init__()
        heads, groups, dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.qkv_proj = MergedLinear(
            config.hidden_size,
            [heads * dim, groups * dim, groups * dim],
            bias=config.attention_bias,
            context=context,
        )
        self.o_proj = Linear(heads * dim, config.hidden_size, bias=config.attention_bias, context=context)
        self._layer_id = layer_id
        self._rotary = rotary
        self._heads, self._groups, self._dim = heads, groups, dim

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """(T, C) to (T, C); `tables` are the rotary tables of the tokens' positions."""
        split = self._heads + self._groups
        qkv = self.qkv_proj(x).reshape(x.shape[0], split + self._groups, self._dim)
        qk = self._rotary.rotate(qkv[:, :split], tables)
        out = attend(qk[:, : self._heads], qk[:, self._heads :], qkv[:, split:], layer_id=self._layer_id)
        projected: Tensor = self.o_proj(out.reshape(x.shape[0], self._heads * self._dim))
        return projected
