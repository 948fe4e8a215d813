"""How the scheduler process treats Python's cyclic garbage collector, which stops passes and compilations."""

import gc

# Young objects, and how many rounds of each age come before one of the next.  Nothing that a request leaves behind
# needs the collector (compilations free their objects themselves), so a look at everything may be rare.
_THRESHOLDS = (2_000, 10, 1_000)


def spare_collector() -> None:
    """Let the collector pass over all objects that are there, and look at what comes less often.

    Called when a process has loaded what it keeps.  A full collection of some hundred thousand objects takes tens of
    milliseconds, in which no token comes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
