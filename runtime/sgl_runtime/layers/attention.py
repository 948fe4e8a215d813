"""Self-attention around the `attend` of the pass."""

from torch import Tensor, nn

from sgl_runtime.attention.base import Attend, Rotary
from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.layers.linear import Linear, MergedLinear
from sgl_runtime.layers.norm import RMSNorm
from sgl_runtime.model_store.model_config import ModelConfig


class SelfAttention(nn.Module):
    """Merged projections, rotary, attend, output projection.

    Args:
        config: Shapes.
        layer_id: Which layer of the pool.
        context: Build context.
    """

    def __init__(self, config: ModelConfig, *, layer_id: int, context: BuildContext) -> None:
        super().__init__()
        heads, groups, dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.qkv_proj = MergedLinear(
            config.hidden_size,
            [heads * dim, groups * dim, groups * dim],
            bias=config.attention_bias,
            context=context,
        )
        self.o_proj = Linear(heads * dim, config.hidden_size, bias=config.attention_bias, context=context)
        self.q_norm = RMSNorm(dim, eps=config.norm_eps, context=context) if config.qk_norm else None
        self.k_norm = RMSNorm(dim, eps=config.norm_eps, context=context) if config.qk_norm else None
        self._layer_id = layer_id
        self._heads, self._groups, self._dim = heads, groups, dim

    def forward(self, x: Tensor, norm: RMSNorm, rotary: Rotary, attend: Attend, wanted: Tensor | None = None) -> Tensor:
        """The residual stream (T, C), normed for the block, to its sum with what the block gives.

        With `wanted`, (R,) places, the sum is given at these alone, (R, C); keys and values are kept of all.
        """
        heads, groups, dim = self._heads, self._groups, self._dim
        qkv = self.qkv_proj.after_norm(x, norm).view(x.shape[0], heads + 2 * groups, dim)
        norms = None
        if self.q_norm is not None and self.k_norm is not None:
            norms = (self.q_norm.weight, self.k_norm.weight, self.q_norm.eps)
        out = attend(qkv, rotary, layer_id=self._layer_id, head_norms=norms)
        out = out.reshape(x.shape[0], heads * dim)
        return self.o_proj.add_to(x, out) if wanted is None else self.o_proj.add_to(x[wanted], out[wanted])
