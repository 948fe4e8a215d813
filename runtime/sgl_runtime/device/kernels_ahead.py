"""KernelsAhead: kernels of a GPU compiled before they are first launched, on all cores, beside the rest of a start."""

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any

import triton
from triton import knobs

logger = logging.getLogger(__name__)


class KernelsAhead:
    """Kernels on their way.

    A launch on tensors without memory compiles (see `kernels.kernel`).  Here compilations go to threads: nearly all of
    their time is spent in compilers that let go of the interpreter.

    Args:
        launch: Launches on such tensors what will be launched later.
        begin_thread: Called first in every thread that compiles.
    """

    def __init__(self, launch: Callable[[], None], *, begin_thread: Callable[[], None]) -> None:
        self._launch, self._begin_thread = launch, begin_thread
        self._thread = Thread(target=self._main, name="sgl kernels", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until they can be launched."""
        self._thread.join()

    def _main(self) -> None:
        begin = time.monotonic()
        num_threads = len(os.sched_getaffinity(0))
        try:
            self._begin_thread()
            with ThreadPoolExecutor(num_threads, "sgl kernel", self._begin_thread) as pool:
                loading = _LoadingPool(pool)
                with knobs.compilation.scope(), triton.AsyncCompileMode(loading, ignore_errors=True):
                    # Nobody reads what the stages between source and binary look like, and to write it holds the
                    # interpreter.
                    knobs.compilation.store_binary_only = True
                    self._launch()
        # Whatever goes wrong: kernels that are not there are compiled when they are launched.
        except Exception as error:
            logger.warning("kernels are compiled at their first launch, not ahead of it: %r", error)
            return
        seconds = time.monotonic() - begin
        logger.info("kernels compiled ahead count=%d seconds=%.2f threads=%d", loading.count, seconds, num_threads)


class _LoadingPool:
    """The executor of Triton's compilations: each is also made ready to be launched.

    Args:
        pool: Its threads.
    """

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self.count = 0

    def submit(self, compile_kernel: Callable[[], Any]) -> Future[Any]:
        """Compile a kernel in a thread."""
        self.count += 1
        return self._pool.submit(_load, compile_kernel)


def _load(compile_kernel: Callable[[], Any]) -> Any:
    try:
        compiled = compile_kernel()
        # Asked for, what launches it is made, by the C compiler; and its code is brought to the device.
        assert compiled.run is not None, "a compiled kernel can be run"
    except Exception as error:
        logger.warning("a kernel cannot be made ready ahead of its first launch: %r", error)
        raise
    return compiled
