"""GrammarChecker: tells whether a constraint would be enforced, in processes that can be ended whatever they do."""

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError, OverloadedError
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.compile_workers import CompileWorkers
from sgl_runtime.grammar.constraint_check import place_of
from sgl_runtime.grammar.worker_setup import WorkerSetup

TIMEOUT_S = 5.0
MEMORY_MIB = 1024
"""Limits of one check, where those of the configuration are not tighter."""

NUM_SLOTS = 2
"""Checks that run at a time, each in a process of its own."""

MAX_WAITING = 16
"""Checks that wait besides."""

LEAVE_GRACE_S = 0.5
"""How long a check may go on that nobody waits for any more: most end by themselves, and their process is kept."""

IDLE_S = 120.0
"""Time without checks after which the processes are ended."""


class _Slot:
    """Runs one check at a time.

    Args:
        config: Limits and policies.
    """

    def __init__(self, config: GrammarConfig) -> None:
        self._config = config
        self._workers = self._new_workers()

    def run(self, spec: GrammarSpec) -> dict[str, Any]:
        """What the check gives; blocks."""
        facts, _ = self._workers.run("check", spec)
        return facts

    def stop(self) -> None:
        """End the process; a check that runs fails."""
        workers, self._workers = self._workers, self._new_workers()
        workers.close()

    def _new_workers(self) -> CompileWorkers:
        return CompileWorkers(lambda: WorkerSetup(self._config, {}), timeout_s=self._config.grammar_compile_timeout)


class GrammarChecker:
    """Checks constraints, a few at a time.

    Args:
        config: The backend, limits and policies of the server.
    """

    def __init__(self, config: GrammarConfig) -> None:
        self._allowed_s = config.grammar_compile_timeout
        config = replace(
            config,
            grammar_compile_timeout=min(config.grammar_compile_timeout, TIMEOUT_S),
            grammar_compile_memory=min(config.grammar_compile_memory, MEMORY_MIB),
        )
        self._slots = [_Slot(config) for _ in range(NUM_SLOTS)]
        self._free = asyncio.Queue[_Slot]()
        for slot in self._slots:
            self._free.put_nowait(slot)
        self._num_waiting = 0
        self._is_closed = False
        self._threads = ThreadPoolExecutor(NUM_SLOTS, thread_name_prefix="grammar-checker")
        self._idle_timer: asyncio.TimerHandle | None = None
        self._kill_timers: set[asyncio.TimerHandle] = set()

    async def check(self, spec: GrammarSpec) -> dict[str, Any]:
        """The fields of `/validate_grammar`; when it is cancelled, the work ends.

        Raises:
            OverloadedError: too many checks wait.
            SglRuntimeError: no process can be started.
        """
        if self._free.empty() and self._num_waiting >= MAX_WAITING:
            raise OverloadedError(
                f"{NUM_SLOTS} constraints are being checked and {MAX_WAITING} wait, which is the most; try again later"
            )
        self._num_waiting += 1
        try:
            slot = await self._free.get()
        finally:
            self._num_waiting -= 1
        if self._is_closed:
            self._free.put_nowait(slot)
            raise OverloadedError("the server is shutting down")
        work = self._threads.submit(slot.run, spec)
        loop = asyncio.get_running_loop()
        work.add_done_callback(lambda done: loop.call_soon_threadsafe(self._give_back, slot))
        begin = time.monotonic()
        try:
            reply = await asyncio.shield(asyncio.wrap_future(work))
        except GrammarError as error:
            reply = _refusal(error)
        except asyncio.CancelledError:
            self._end_soon(slot, work)
            raise
        if not reply["valid"] and self._allowed_s > TIMEOUT_S <= time.monotonic() - begin:
            reply["note"] = f"a check ends after {TIMEOUT_S:g} seconds; a request may take {self._allowed_s:g}"
        return reply

    async def close(self) -> None:
        """End what runs, and the processes."""
        self._is_closed = True
        for timer in (*self._kill_timers, *([] if self._idle_timer is None else [self._idle_timer])):
            timer.cancel()
        for slot in self._slots:
            slot.stop()
        # A slot comes back when its check has ended.  A thread to wait in could not be begun while Python exits.
        for slot in [await self._free.get() for _ in self._slots]:
            self._free.put_nowait(slot)
        self._threads.shutdown()

    def _give_back(self, slot: _Slot) -> None:
        self._free.put_nowait(slot)
        if self._is_closed:
            return
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(IDLE_S, self._stop_idle)

    def _end_soon(self, slot: _Slot, work: "Future[dict[str, Any]]") -> None:
        if work.done():
            return

        def end() -> None:
            self._kill_timers.discard(timer)
            if not work.done():
                slot.stop()

        timer = asyncio.get_running_loop().call_later(LEAVE_GRACE_S, end)
        self._kill_timers.add(timer)

    def _stop_idle(self) -> None:
        self._idle_timer = None
        if self._free.qsize() == NUM_SLOTS:
            for slot in self._slots:
                slot.stop()


def _refusal(error: GrammarError) -> dict[str, Any]:
    """The reply where the check itself was ended: past its time or memory, or by a crash."""
    place = place_of(error.message)
    return {
        "valid": False,
        "message": error.message,
        "place": place,
        "problems": [{"message": error.message, "place": place}],
        "backend": None,
        "note": None,
        "states": None,
        "seconds": None,
        "relaxed": [],
        "unknown": [],
    }
