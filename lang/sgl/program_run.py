"""ProgramRun: one execution of a program's function."""

import contextvars
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sgl.default_backend import resolve_backend
from sgl.errors import ProgramError, SglError
from sgl.event_loop import event_loop_thread
from sgl.executor import StateExecutor
from sgl.program_state import ProgramState
from sgl.run_context import DefaultLimitNotice, RunContext
from sgl.run_options import RunOptions
from sgl.seeds import Seeds
from sgl.transcript import Transcript

Body = Callable[..., Any]


@dataclass(frozen=True)
class ProgramCall:
    """Arguments and options of one run, checked.

    Attributes:
        args, kwargs: What the function gets behind the state.
        options: Run options.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: RunOptions


class ProgramRun:
    """Runs a function once on a new state.

    Args:
        body: The function.
        call: Its arguments and options.
        notice: The program's warning about the default limit.

    Attributes:
        state: What the function gets as its first argument.
    """

    def __init__(self, body: Body, call: ProgramCall, notice: DefaultLimitNotice) -> None:
        options = call.options
        self._body = body
        self._call = call
        self._context = RunContext(
            program=body.__name__,
            backend=resolve_backend(options.backend),
            loop=event_loop_thread(),
            sampling=options.sampling,
            stream=options.stream,
            notice=notice,
        )
        self._executor = StateExecutor(
            context=self._context, seeds=Seeds(options.sampling.seed), transcript=Transcript()
        )
        self.state = ProgramState(self._executor, is_inline=not options.use_thread)

    @property
    def is_streaming(self) -> bool:
        """Whether the function is to run in a thread of its own."""
        return self._context.stream

    def run_body(self) -> None:
        """Run the function in the calling thread.  If it raises, the state ends, and the exception goes on as it is."""
        self._context.body_begins()
        try:
            self.state.ret_value = self._body(self.state, *self._call.args, **self._call.kwargs)
        except BaseException as error:
            self._executor.queue.fail(self._explain(error), with_branches=True)
            raise
        finally:
            self._context.body_ends()

    def start_body(self) -> None:
        """Run the function in a thread of its own; what it raises is the state's error."""
        variables = contextvars.copy_context()
        name = f"sgl-{self._context.program}"
        threading.Thread(target=variables.run, args=(self._run_body_quietly,), name=name, daemon=True).start()

    def cancel(self) -> None:
        """End the state and its forks."""
        self._executor.cancel()

    def _run_body_quietly(self) -> None:
        try:
            self.run_body()
        except Exception:
            # The state carries it to whoever reads; nobody can catch it here.
            assert self._executor.queue.error is not None, "a body that raised has ended its state"

    def _explain(self, error: BaseException) -> SglError:
        if isinstance(error, ProgramError):
            # What the function read had failed: that error says more than this run could add.
            return error
        program = self._context.program
        source = self._source(error)
        cause = str(error) if isinstance(error, SglError) else f"{type(error).__name__}: {error}"
        explained = ProgramError(
            f"program {program!r} failed in its body at {source}: {cause}", program=program, source=source
        )
        explained.__cause__ = error
        return explained

    def _source(self, error: BaseException) -> str:
        """The line of the function that the exception came through."""
        file = self._body.__code__.co_filename
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == file), None)
        return f"{file}:{line if line is not None else self._body.__code__.co_firstlineno}"
