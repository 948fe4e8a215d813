"""TokenToKVPool: keys and values by layer and slot."""

import torch
from torch import Tensor

from sgl_runtime.model_store.model_config import ModelConfig


class TokenToKVPool:
    """Keys and values of every cached token.

    Args:
        config: Shapes.
        num_slots: Tokens that fit.
        dtype: Type of the entries.
        device: Where they live.
    """

    def __init__(self, config: ModelConfig, *, num_slots: int, dtype: torch.dtype, device: torch.device) -> None:
        self.num_heads, self.num_groups = config.num_heads, config.num_kv_heads
        # One slot more than there are, for rows that only fill up a pass.
        self.spare_slot = num_slots
        shape = (config.num_layers, num_slots + 1, config.num_kv_heads, config.head_dim)
        self._keys = torch.empty(shape, dtype=dtype, device=device)
        self._values = torch.empty(shape, dtype=dtype, device=device)
        self._by_layer = list(zip(self._keys.unbind(0), self._values.unbind(0), strict=True))

    @staticmethod
    def slot_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
        """Bytes of one token over all layers."""
        return 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype.itemsize

    def store(self, layer_id: int, slot_ids: Tensor, k: Tensor, v: Tensor) -> None:
        """Write new entries.

        Args:
            layer_id: Which layer.
            slot_ids: (T,) int64.
            k, v: (T, G, D).
        """
        keys, values = self._by_layer[layer_id]
        keys.index_copy_(0, slot_ids, k)
        values.index_copy_(0, slot_ids, v)

    def gather(self, slot_ids: Tensor) -> Tensor:
        """(n, 2, L, G, D) keys and values of some slots over all layers, a copy.

        Args:
            slot_ids: (n,) int64.
        """
        return torch.stack([self._keys[:, slot_ids], self._values[:, slot_ids]]).permute(2, 0, 1, 3, 4).contiguous()

    def scatter(self, slot_ids: Tensor, entries: Tensor) -> None:
        """Write what `gather` gave.

        Args:
            slot_ids: (n,) int64.
            entries: (n, 2, L, G, D).
        """
        keys, values = entries.permute(1, 2, 0, 3, 4).unbind(0)
        self._keys.index_copy_(1, slot_ids, keys)
        self._values.index_copy_(1, slot_ids, values)

    def layer(self, layer_id: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, (slots, G, D) each."""
        return self._by_layer[layer_id]
