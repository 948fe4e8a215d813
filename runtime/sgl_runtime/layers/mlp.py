"""The gated feed-forward block."""

from torch import Tensor, nn

from sgl_runtime.layers.build_context import BuildContext
from sgl_runtime.layers.linear import Linear, MergedLinear
from sgl_runtime.layers.norm import RMSNorm
from sgl_runtime.model_store.model_config import ModelConfig


class GatedMLP(nn.Module):
    """down(SiLU(gate(x)) * up(x)), gate and up as one product.

    Args:
        config: Shapes.
        context: Build context.
    """

    def __init__(self, config: ModelConfig, *, context: BuildContext) -> None:
        super().__init__()
        sizes = [config.intermediate_size] * 2
        self.gate_up_proj = MergedLinear(config.hidden_size, sizes, bias=config.mlp_bias, context=context)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias, context=context)
        self._ops = context.ops

    def forward(self, x: Tensor, norm: RMSNorm) -> Tensor:
        """The residual stream (T, C), normed for the block, to its sum with what the block gives."""
        hidden = self._ops.gated_linear(x, norm.parts, self.gate_up_proj.packed, self.gate_up_proj.bias)
        return self.down_proj.add_to(x, hidden)
