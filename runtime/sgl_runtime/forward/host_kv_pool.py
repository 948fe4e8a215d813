"""HostKVPool: keys and values in host memory, of prefixes that were dropped from the device."""

from collections.abc import Iterator

import numpy as np
import torch

from sgl_runtime.batch import Batch, IntArray, SlotCopies
from sgl_runtime.device.base import Device
from sgl_runtime.errors import ConfigError
from sgl_runtime.forward.token_to_kv_pool import TokenToKVPool

TOKENS_AT_ONCE = 2048
"""Bounds the device memory that copies take on their way."""


class HostKVPool:
    """The other end of `Batch.stores` and `Batch.loads`.

    All layers of a token lie together, so that slots that follow each other move in one copy.  Copies are put on the
    device's queue like every other work, and nothing but copies touches this memory.

    Args:
        pool: The pool on the device.
        num_slots: Tokens that fit.
        device: The device.

    Raises:
        ConfigError: host memory does not hold so many.
    """

    def __init__(self, pool: TokenToKVPool, *, num_slots: int, device: Device) -> None:
        self._pool = pool
        self._device = device
        entry = pool.gather(torch.zeros(1, dtype=torch.int64, device=device.torch_device))
        shape = (num_slots, *entry.shape[1:])
        try:
            self._entries = device.host_buffer(shape, entry.dtype)
        except RuntimeError as error:
            size_gb = num_slots * entry.nbytes / 1e9
            raise ConfigError(
                f"hicache_ratio or hicache_size asks for {size_gb:.1f} GB of host memory, which cannot be had: {error}"
            ) from error

    def copy(self, batch: Batch) -> None:
        """Make the copies of a pass; called before anything of it is written."""
        if batch.stores is not None:
            for piece in _pieces(batch.stores):
                entries = self._pool.gather(self._device.to_device(piece.device_slots.astype(np.int64)))
                for begin, end, slot in _runs(piece.host_slots):
                    self._entries[slot : slot + end - begin].copy_(entries[begin:end], non_blocking=True)
        if batch.loads is not None:
            for piece in _pieces(batch.loads):
                count = len(piece.host_slots)
                entries = torch.empty(
                    (count, *self._entries.shape[1:]), dtype=self._entries.dtype, device=self._device.torch_device
                )
                for begin, end, slot in _runs(piece.host_slots):
                    entries[begin:end].copy_(self._entries[slot : slot + end - begin], non_blocking=True)
                self._pool.scatter(self._device.to_device(piece.device_slots.astype(np.int64)), entries)


def _pieces(copies: SlotCopies) -> Iterator[SlotCopies]:
    """The copies in the order of their slots on the host, some at a time."""
    order = np.argsort(copies.host_slots)
    for begin in range(0, len(order), TOKENS_AT_ONCE):
        chosen = order[begin : begin + TOKENS_AT_ONCE]
        yield SlotCopies(device_slots=copies.device_slots[chosen], host_slots=copies.host_slots[chosen])


def _runs(slots: IntArray) -> Iterator[tuple[int, int, int]]:
    """Begin, end and first slot of each stretch of slots that follow each other."""
    cuts = np.flatnonzero(np.diff(slots) != 1) + 1
    for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(slots)], strict=True):
        yield begin, end, int(slots[begin])
