"""What attention kernels take at a time on chips of several sizes; that it fits is seen where they are compiled."""

import pytest

from sgl_runtime.device.kernels.shared_memory import Tile, largest_fitting, tile_bytes

LIMITS = {80: 166_912, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
PROMPTS, SHARED = Tile(128, 64, 3), Tile(64, 64, 3)


def fitting(tile: Tile, lanes: int, element_size: int, arch: int) -> Tile:
    return largest_fitting(tile, lanes=lanes, element_size=element_size, arch=arch, limit=LIMITS[arch])


@pytest.mark.parametrize("arch", LIMITS)
@pytest.mark.parametrize("tile", [PROMPTS, SHARED])
@pytest.mark.parametrize("lanes", [64, 128])
def test_usual_heads_of_16_bits_get_what_was_measured_to_be_fastest(arch, tile, lanes):
    assert fitting(tile, lanes, 2, arch) == tile


def test_wide_heads_and_types_get_what_is_left():
    assert fitting(SHARED, 256, 2, 90) == SHARED
    assert fitting(SHARED, 256, 2, 80) == Tile(64, 64, 2)
    assert fitting(PROMPTS, 64, 4, 89) == Tile(128, 64, 2)
    assert fitting(PROMPTS, 128, 4, 89) == Tile(128, 16, 2)


@pytest.mark.parametrize(
    ("arch", "lanes", "size", "taken"), [(90, 256, 2, 196_864), (80, 128, 2, 98_560), (89, 128, 4, 164_352)]
)
def test_bytes_are_what_the_compiler_takes(arch, lanes, size, taken):
    tile = PROMPTS._replace(stages=2 if lanes * size > 256 else 3)
    assert 0 <= tile_bytes(tile, lanes=lanes, element_size=size, arch=arch) - taken <= 1024
