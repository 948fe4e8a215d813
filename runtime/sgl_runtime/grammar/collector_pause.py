"""A pause of Python's cyclic garbage collector while a grammar is compiled."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Keep the collector from looking at objects that a compilation makes: there are many, and they free themselves.

    The budget of the compilation bounds how many there can be.  Who finds the collector running switches it off and on
    again, and nobody else does; so it runs when all that overlap in several threads are over, in whatever order.  (One
    that is not over may see it run earlier.)
    """
    was_running = gc.isenabled()
    if was_running:
        gc.disable()
    try:
        yield
    finally:
        if was_running:
            gc.enable()
