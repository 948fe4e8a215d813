"""How many positions an attention kernel takes at a time, and how many loads are under way: what shared memory holds.

Triton ends a launch that asks for more than the chip has.  What was measured to be the fastest fits where it was
measured; with wider heads, wider types or on smaller chips less must do.
"""

import functools
from typing import NamedTuple

from torch import Tensor
from triton.runtime import driver

from sgl_runtime.device.kernels.kernel import is_for_gpu

MIN_BLOCK = 16
"""Positions of the smallest block: what the matrix unit takes."""

OTHER_BYTES = 1024
"""For what reductions exchange, and for alignment."""


class Tile(NamedTuple):
    """What a program takes at a time.

    Attributes:
        queries: Rows of queries.
        block: Positions.
        stages: Loads of keys and values that are under way.
    """

    queries: int
    block: int
    stages: int


def fitting_tile(tile: Tile, *, query: Tensor, lanes: int) -> Tile:
    """The tile, or the largest smaller one that fits the chip in use.

    Args:
        tile: What is wanted.
        query: The queries, on the device.
        lanes: Width of a head, rounded up to a power of 2.
    """
    if not is_for_gpu(query):
        return tile
    arch, limit = _chip(driver.active.get_current_device())
    return largest_fitting(tile, lanes=lanes, element_size=query.element_size(), arch=arch, limit=limit)


@functools.cache
def largest_fitting(tile: Tile, *, lanes: int, element_size: int, arch: int, limit: int) -> Tile:
    """See `fitting_tile`; with fewer loads under way first, as long as there are two, then with smaller blocks.

    Args:
        tile: What is wanted.
        lanes: See there.
        element_size: Bytes of a number.
        arch: Compute capability, times 10.
        limit: Bytes that a program may have.
    """
    while tile_bytes(tile, lanes=lanes, element_size=element_size, arch=arch) > limit:
        if tile.stages > 2:
            tile = tile._replace(stages=tile.stages - 1)
        elif tile.block > MIN_BLOCK:
            tile = tile._replace(block=tile.block // 2)
        else:
            break
    return tile


def tile_bytes(tile: Tile, *, lanes: int, element_size: int, arch: int) -> int:
    """Shared memory of an attention kernel: what Triton 3.6 takes at most (`tests/runtime/device`).

    Args:
        tile, lanes, element_size, arch: See `largest_fitting`.
    """
    queries = tile.queries * lanes * element_size
    block = 2 * tile.block * lanes * element_size
    if 90 <= arch < 120 and element_size == 2:
        # The matrix unit of these chips reads shared memory itself, so a block stays there until its product is done.
        return tile.stages * block + queries + OTHER_BYTES
    # Weights move between threads by way of it, unless the matrix unit finds them where they are.
    weights = tile.queries * tile.block * element_size if element_size > 2 or lanes > 128 else 0
    return (tile.stages - 1) * block + queries + weights + OTHER_BYTES


@functools.cache
def _chip(device: int) -> tuple[int, int]:
    properties = driver.active.utils.get_device_properties(device)
    return int(driver.active.get_current_target().arch), int(properties["max_shared_mem"])
