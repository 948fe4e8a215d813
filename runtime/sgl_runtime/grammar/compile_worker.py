"""A process that compiles grammars for its owner, one at a time, so that any of them can be stopped.

Started by `CompileWorkers`.  It ends with its owner, and by itself when a compilation passes its time by far.
"""

import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.automaton_record import to_record
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.budget import BudgetError
from sgl_runtime.grammar.compiler import AutomatonCompiler
from sgl_runtime.grammar.frames import receive_frame, send_frame
from sgl_runtime.grammar.packed_arrays import pack, unpack
from sgl_runtime.grammar.worker_setup import GRACE_S, Task, WorkerSetup
from sgl_runtime.registry import Registry

_NICENESS = 5
"""Decoding goes before compiling."""

_WATCH_S = 0.5
"""How often a worker looks whether its owner is still there."""

WORKER_TASKS = Registry(
    "worker task",
    {
        "automaton": "sgl_runtime.grammar.compile_worker:automaton_task",
        "check": "sgl_runtime.grammar.constraint_check:check_task",
        "llguidance": "sgl_runtime.grammar.llguidance_grammar:check_task",
        "outlines": "sgl_runtime.grammar.outlines_index:index_task",
    },
)


def automaton_task(setup: WorkerSetup) -> Task:
    """Compiles specs to automata, with fragments that stay warm."""
    compiler = AutomatonCompiler(setup.config, setup.arrays["usable_bytes"])

    return lambda spec: to_record(compiler.make(spec, compiler.budget()))


def main(descriptor: int) -> None:
    """Serve compilations until the owner is gone.

    Args:
        descriptor: The worker's end of a pair of sockets.
    """
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # While it compiles it does not look at the channel.
    Thread(target=_end_with_owner, args=(os.getppid(),), name="owner watch", daemon=True).start()
    with socket.socket(fileno=descriptor) as channel:
        try:
            setup = WorkerSetup.unpacked(receive_frame(channel))
            _limit_memory(setup.config.grammar_compile_memory * 2**20)
            send_frame(channel, b"")
            _serve(channel, setup)
        except (EOFError, BrokenPipeError):
            return


def _end_with_owner(owner: int) -> None:
    while os.getppid() == owner:
        time.sleep(_WATCH_S)
    os._exit(1)


def _serve(channel: socket.socket, setup: WorkerSetup) -> None:
    tasks: dict[str, Task] = {}
    while True:
        request, _ = unpack(receive_frame(channel))
        name = request["task"]
        with _alarm(setup.config.grammar_compile_timeout + 2 * GRACE_S):
            if name not in tasks:
                tasks[name] = WORKER_TASKS.load(name)(setup)
            spec = GrammarSpec(request["kind"], request["text"], request["lenient"])
            send_frame(channel, _reply(tasks[name], spec, setup.config))


def _reply(task: Task, spec: GrammarSpec, config: GrammarConfig) -> bytes:
    try:
        facts, arrays = task(spec)
    except GrammarError as error:
        return pack({"error": error.message, "is_budget": isinstance(error, BudgetError), "is_spent": False}, {})
    except (MemoryError, SystemError):
        # A SystemError is how the interpreter reports some allocations that failed.  The reply itself needs memory.
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
        message = (
            f"compiling the grammar needs more than {config.grammar_compile_memory} MiB of memory"
            " (grammar_compile_memory)"
        )
        return pack({"error": message, "is_budget": True, "is_spent": True}, {})
    return pack(facts, arrays)


def _limit_memory(size_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = size_bytes if hard == resource.RLIM_INFINITY else min(size_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """End this process when what stands inside takes longer: its owner may be gone."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
