"""How often tokens could be found in the cache at best, whatever the policy; found offline."""

from collections.abc import Iterable

import numpy as np
from traces.trace import TraceRequest, TraceTokens

from sgl_runtime.cache.radix_cache import RadixCache


def replay(requests: list[TraceRequest], tokens: TraceTokens, order: Iterable[int], *, capacity: int | None) -> float:
    """The hit rate when requests run one after another.

    Args:
        requests: The trace.
        tokens: Its tokens.
        order: Places of the requests; what a request goes on from comes before it.
        capacity: Tokens that the cache holds; None for any number.
    """
    cache, hits, total = RadixCache(), 0, 0
    nowhere = np.zeros(max(len(tokens.sequence(place)) for place in range(len(requests))), dtype=np.int32)
    for place in order:
        sequence, prompt_len = tokens.sequence(place), len(tokens.prompt(place))
        match = cache.match(sequence[: prompt_len - 1])
        hits, total = hits + match.length, total + prompt_len
        cache.lock(match.node)
        if capacity is not None:
            over = cache.num_cached + len(sequence) - match.length - capacity
            cache.evict(max(0, over))
        cache.insert(sequence, nowhere[: len(sequence)], after=cache.top)
        cache.unlock(match.node)
    return hits / total


def best_hit_rates(requests: list[TraceRequest], tokens: TraceTokens, *, capacity: int) -> tuple[float, float]:
    """With a cache of any size, where the order does not matter; and with this one, down the tree of all prompts.

    All requests are there from the start.  For requests that do not go on from each other the second is the best there
    is, if the longest of them fits (arXiv:2312.07104, theorem 3.1); else it is close.
    """
    # Prefixes come before what goes on from them, and what shares a prefix lies together.
    keys = [tokens.prompt(place).astype(">i4").tobytes() for place in range(len(requests))]
    down = sorted(range(len(requests)), key=lambda place: (keys[place], place))
    return (
        replay(requests, tokens, range(len(requests)), capacity=None),
        replay(requests, tokens, down, capacity=capacity),
    )
