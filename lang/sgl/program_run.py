"""ProgramRun: one execution of a program's function, on a new state or inline on the state of another program."""

import asyncio
import inspect
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from sgl.async_state import AsyncProgramState
from sgl.backends.base import Backend
from sgl.capability_check import check_sampling_supported
from sgl.default_backend import resolve_backend
from sgl.errors import ArgumentError, ProgramError, SglError
from sgl.event_loop import event_loop_thread
from sgl.executor import StateExecutor
from sgl.node_queue import ended
from sgl.prefix_warmup import PrefixWarmup
from sgl.process_config import global_config
from sgl.program_signature import BoundCall
from sgl.program_state import ProgramState
from sgl.recording import Recording, current_recording
from sgl.run_context import DefaultLimitNotice, RunContext
from sgl.run_options import RunOptions
from sgl.run_settings import RunSettings
from sgl.scope import StateScope
from sgl.seeds import Seeds
from sgl.transcript import Transcript
from sgl.variable import VariableTable

Body = Callable[..., Any]


class ProgramRun:
    """Runs a function once on a new state.

    Args:
        body: The function; an async one gets an `AsyncProgramState`.
        call: Its arguments.
        options: Run options.
        notice: The program's warning about the default limit.
        warmup: What the items of a batch share; None outside of batches.
    """

    def __init__(
        self,
        body: Body,
        call: BoundCall,
        options: RunOptions,
        notice: DefaultLimitNotice,
        warmup: PrefixWarmup | None = None,
    ) -> None:
        self._body = body
        self._call = call
        if is_async(body) and not options.use_thread:
            raise ArgumentError(
                f"use_thread=False is for plain programs; {body.__name__!r} is async and awaits its reads"
            )
        backend = resolve_backend(options.backend)
        check_sampling_supported(options.sampling, backend.capabilities, "run")
        recording = current_recording() or (Recording() if options.record else None)
        self._context = RunContext(
            program=body.__name__,
            backend=backend,
            loop=event_loop_thread(),
            stream=options.stream,
            settings=_settings(options, backend),
            notice=notice,
            warmup=warmup,
            recorder=recording.new_run(body.__name__) if recording is not None else None,
        )
        self._executor = StateExecutor(
            context=self._context, seeds=Seeds(options.sampling.seed), transcript=Transcript()
        )
        self._executor.recording = recording
        self._scope = StateScope(self._executor, table=VariableTable(), sampling=options.sampling)
        self._is_inline = not options.use_thread
        self._scope.append(options.start)

    def state(self) -> ProgramState:
        """The state for a caller that is no task."""
        return ProgramState(self._scope.outside(), is_inline=self._is_inline)

    def async_state(self) -> AsyncProgramState:
        """The state for a task."""
        return AsyncProgramState(self._scope.outside())

    def run(self) -> None:
        """Run the function: a plain one in the calling thread, an async one on the event loop.

        If it raises, the state ends, and the exception goes on as it is.
        """
        if is_async(self._body):
            self._context.loop.wait(self._run_async_body())
        else:
            self._run_plain_body()

    async def run_async(self) -> None:
        """Run the function: a plain one in a thread, an async one in the calling task."""
        if is_async(self._body):
            await self._run_async_body()
            return
        try:
            await asyncio.wrap_future(self._context.loop.bodies.start(self._run_plain_body, name=self._thread_name))
        except asyncio.CancelledError:
            self.cancel()
            raise

    def start(self) -> None:
        """Run the function beside the caller, in a thread or on the event loop; what it raises is the state's error."""
        if is_async(self._body):
            self._context.loop.start(self._quietly(self._run_async_body()))
        else:
            self._context.loop.bodies.start(self._run_plain_body, name=self._thread_name)

    def start_async(self) -> None:
        """The same for a task: an async function runs in a task of the caller's loop."""
        if is_async(self._body):
            self._context.loop.hold(asyncio.ensure_future(self._quietly(self._run_async_body())))
        else:
            self.start()

    async def commit_start(self) -> int:
        """Put what the state begins with into the prefix cache; the number of its tokens."""
        await self.async_state().sync()
        prompt = self._executor.queue.transcript.prompt
        if prompt.is_empty:
            return 0
        committed = await self._context.backend.commit(prompt)
        return len(committed.ids) + len(committed.pending_ids or ())

    def cancel(self) -> None:
        """End the state and its forks."""
        self._executor.cancel()

    @property
    def _thread_name(self) -> str:
        return f"sgl-{self._context.program}"

    def _run_plain_body(self) -> None:
        state = ProgramState(self._scope, is_inline=self._is_inline)
        try:
            self._executor.ret_value = self._body(state, *self._call.args, **self._call.kwargs)
            if self._context.settings.prints_text:
                state.error()
                print(state.text(partial=True))
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._context.body_ends()

    async def _run_async_body(self) -> None:
        state = AsyncProgramState(self._scope)
        try:
            self._executor.ret_value = await self._body(state, *self._call.args, **self._call.kwargs)
            if self._context.settings.prints_text:
                await state.error()
                print(await state.text(partial=True))
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._context.body_ends()

    async def _quietly(self, body: Coroutine[Any, Any, None]) -> None:
        try:
            await body
        except Exception:
            # The state carries it to whoever reads; nobody can catch it here.
            assert self._executor.queue.error is not None, "a body that raised has ended its state"

    def _fail(self, error: BaseException) -> None:
        self._executor.queue.fail(explain_body_error(self._body, self._context.program, error), with_branches=True)


def _settings(options: RunOptions, backend: Backend) -> RunSettings:
    """What holds for all nodes of a run.

    Raises:
        ArgumentError: the run streams and speculates.
    """
    # Where the backend caches prefixes, a call costs what it generates: nothing is saved by asking for more.
    speculates = options.num_api_spec_tokens is not None and backend.capabilities.can_speculate
    if speculates and options.stream:
        raise ArgumentError(
            f"num_api_spec_tokens is {options.num_api_spec_tokens} and stream is True: speculation waits for whole "
            "replies; set one of them"
        )
    if options.chat_template is not None and backend.capabilities.takes_messages:
        raise ArgumentError(
            f"chat_template is {options.chat_template.name!r}, and {backend.capabilities.shown_as} takes messages: its "
            "server puts the text around them"
        )
    return RunSettings(
        choices_method=options.choices_method or global_config.choices_method,
        chat_template=options.chat_template or backend.chat_template,
        num_api_spec_tokens=options.num_api_spec_tokens if speculates else None,
        prints_text=global_config.verbosity >= 2,
        shows_special_tokens=not global_config.skip_special_tokens_in_output,
    )


def is_async(body: Body) -> bool:
    """Whether a program's function is written with `async def`."""
    return inspect.iscoroutinefunction(body)


def explain_body_error(body: Body, program: str, error: BaseException) -> SglError:
    """The error of a state whose body raised."""
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return ended(program, "was cancelled")
    if isinstance(error, ProgramError):
        # What the function read had failed: that error says more than this run could add.
        return error
    file = body.__code__.co_filename
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == file), None)
    source = f"{file}:{line if line is not None else body.__code__.co_firstlineno}"
    cause = str(error) if isinstance(error, SglError) else f"{type(error).__name__}: {error}"
    explained = ProgramError(
        f"program {program!r} failed in its body at {source}: {cause}", program=program, source=source
    )
    explained.__cause__ = error
    return explained
