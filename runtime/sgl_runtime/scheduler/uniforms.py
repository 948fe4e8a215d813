"""The random number of each draw, from a request's seed and the draw's index alone."""

import numpy as np
from numpy.typing import NDArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seeds: NDArray[np.uint64], indices: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1), a function of (seed, index) and of nothing else.

    Args:
        seeds: (B,) seed of each request.
        indices: (B,) how many draws the request has made before.

    Source: the splitmix64 generator (Steele, Lea, Flood 2014), its state set from the mixed seed.
    """
    with np.errstate(over="ignore"):
        bits = _mix(_mix(seeds) + (indices + np.uint64(1)) * _GAMMA)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
