"""@function: makes a program of a Python function whose first parameter is the state."""

import functools
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, overload

from sgl.async_batch import AsyncBatchRun
from sgl.async_state import AsyncProgramState
from sgl.batch import BatchFailure, BatchRun, BatchSettings
from sgl.default_backend import resolve_backend
from sgl.event_loop import event_loop_thread
from sgl.inline_call import call_inline
from sgl.ir import Concat
from sgl.prefix_warmup import PrefixWarmup
from sgl.process_config import global_config
from sgl.program_run import Body, ProgramRun, is_async
from sgl.program_signature import BoundCall, ProgramSignature
from sgl.program_state import ProgramState
from sgl.run_context import DefaultLimitNotice
from sgl.run_options import RunOptions
from sgl.state_base import BaseState
from sgl.trace_run import cache_prefix, do_nothing, trace_body
from sgl.tracer import Trace, TracerState

OnError = Literal["raise", "collect"]


class Function:
    """A program, made by `@sgl.function` of a plain or an `async def` function.

    Keywords of `run` are told apart by name: a keyword that is a parameter of the function goes to the function,
    whatever its name; the rest must be run options.  A program that has a parameter called `temperature` gets its
    sampling temperature from `options(temperature=...)`.

    Args:
        body: The function; its first parameter takes the state.
        bound: Arguments that are given already.
        options: Run options that are given already.
    """

    def __init__(self, body: Body, *, bound: dict[str, Any] | None = None, options: RunOptions | None = None) -> None:
        self._body = body
        self._bound = bound or {}
        self._options = options or RunOptions()
        self._signature = ProgramSignature(body)
        self._notice = DefaultLimitNotice(body.__name__)
        functools.update_wrapper(self, body)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program: on a new state like `run`, or inline where the first argument is the state of a program.

        Inline, the function works on that state: text, roles, forks and seeds go on as if it were written there, and
        the call gives what the function returns (to be awaited if it is async).  Variables are local to the call, as in
        Python: it neither sees nor changes those of the caller.  A function hands out its own by returning their
        values, or by returning its state to let the caller read them.  Run options of an inline call are sampling
        settings, for its gens alone.  A state that `run` returned can be continued in the same way.

        Raises:
            TypeError: the arguments do not fit the function.
            ArgumentError: a run option has a wrong value, or the state belongs to a program of the other kind.
        """
        if args and isinstance(args[0], BaseState | TracerState):
            own, values = self._signature.split(kwargs, "an inline call")
            call = self._signature.bind(args[1:], own, self._bound, "an inline call")
            return call_inline(self._body, args[0], call, self._options.updated(values))
        return self.run(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Run the program once on a new state; a plain function runs in the calling thread.

        Returns when the function does, so generation may go on; reading the state waits for it.  With `stream=True` the
        function runs beside the caller, and this returns at once.  An async function runs on the language's event loop.

        Args:
            *args: Arguments of the function, behind the state.
            **kwargs: Arguments of the function by name, and run options.  For gens that do not say their own:
                max_new_tokens (128), n (1), stop, stop_regex, stop_token_ids, temperature (1.0), top_p (1.0),
                top_k (-1), min_p (0.0), ignore_eos (False), return_logprob (False), logprob_start_len,
                top_logprobs_num, token_ids_logprob, return_text_in_logprobs, seed, min_new_tokens, frequency_penalty,
                presence_penalty, repetition_penalty, logit_bias, priority, extra_key, return_hidden_states,
                custom_logit_processor, custom_params, lora_path, json_schema_lenient.
                And backend (the default one); stream (False); use_thread (True; False:
                appending waits, and raises where it fails); messages (a list of `{"role", "content"}` that the state
                begins with); record (False; True: keep what the run does in the state's `recording`); choices_method
                (how selects pick that do not say); chat_template (a `ChatTemplate` in place of the served model's
                own); num_api_spec_tokens (see `function`).

        Raises:
            TypeError: the arguments do not fit the function.
            ArgumentError: a run option has a wrong value.
            Exception: what the function raises, as it is.
        """
        run = self._new_run(args, kwargs)
        state = run.state()
        if self._is_streaming(kwargs):
            run.start()
        else:
            run.run()
        return state

    async def arun(self, *args: Any, **kwargs: Any) -> AsyncProgramState:
        """`run` for tasks of any event loop; the reads of the state are awaited.

        An async function runs in the calling task (with `stream=True`: in a task of its own), so it may use what
        belongs to the caller's loop; a plain function runs in a thread.  Cancelling the task ends the run.
        """
        run = self._new_run(args, kwargs)
        state = run.async_state()
        if self._is_streaming(kwargs):
            run.start_async()
        else:
            await run.run_async()
        return state

    def run_batch(
        self,
        batch_arguments: Iterable[dict[str, Any] | tuple[Any, ...]],
        *,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        on_error: OnError = "raise",
        **options: Any,
    ) -> Any:
        """Run the program once for each item, many at a time.  The function runs exactly once for each.

        Args:
            batch_arguments: For each item the function's arguments, a dict by name or a tuple in order.  All are
                checked before the first one runs.
            num_threads: Most items that run at a time; "auto" takes 16 for each core, at least 96, and for an async
                program, which needs no thread, 1,024.
            progress_bar: Show progress in the terminal.
            generator_style: Give a generator of states, in order, in place of a list.  At most `num_threads` items run
                ahead of the one that is asked for; closing it cancels the rest.
            on_error: "raise" cancels the rest when an item fails and raises its error; "collect" puts a `BatchFailure`
                with index, error and traceback in its place.
            **options: The run options of `run`, without stream.

        Returns:
            The finished states, in order.

        Raises:
            TypeError: an item does not fit the function; the message names the item.
            ArgumentError: an option has a wrong value.
        """
        settings = BatchSettings.checked(num_threads, on_error, is_async=is_async(self._body))
        title = self._body.__name__ if progress_bar else None
        make_run, num_items = self._batch_runs(batch_arguments, options)
        if is_async(self._body):
            items = AsyncBatchRun(make_run, num_items, settings=settings, view=ProgramRun.state, title=title)
            results = items.results_from(event_loop_thread())
        else:
            results = BatchRun(make_run, num_items, settings=settings, title=title).results()
        return results if generator_style else list(results)

    async def arun_batch(
        self,
        batch_arguments: Iterable[dict[str, Any] | tuple[Any, ...]],
        *,
        num_threads: int | Literal["auto"] = "auto",
        on_error: OnError = "raise",
        **options: Any,
    ) -> list[AsyncProgramState | BatchFailure]:
        """`run_batch` for tasks: the list of finished states; cancelling the task ends all items."""
        results = self.arun_batch_iter(batch_arguments, num_threads=num_threads, on_error=on_error, **options)
        return [result async for result in results]

    def arun_batch_iter(
        self,
        batch_arguments: Iterable[dict[str, Any] | tuple[Any, ...]],
        *,
        num_threads: int | Literal["auto"] = "auto",
        on_error: OnError = "raise",
        **options: Any,
    ) -> AsyncGenerator[Any, None]:
        """`run_batch(generator_style=True)` for `async for`."""
        settings = BatchSettings.checked(num_threads, on_error, is_async=is_async(self._body))
        make_run, num_items = self._batch_runs(batch_arguments, options)
        view = ProgramRun.async_state
        return AsyncBatchRun(make_run, num_items, settings=settings, view=view, title=None).results()

    def bind(self, **kwargs: Any) -> "Function":
        """The same program with some arguments given; those of a later call win over them.

        Raises:
            TypeError: the function has no such parameter.
        """
        self._signature.check_names(kwargs)
        return Function(self._body, bound={**self._bound, **kwargs}, options=self._options)

    def options(self, **options: Any) -> "Function":
        """The same program with other run options, as in `program.options(temperature=0.0, backend=judge)`.

        Raises:
            TypeError: there is no such option.
            ArgumentError: an option has a wrong value.
        """
        updated = self._options.updated(self._signature.known_options(options, "options"))
        return Function(self._body, bound=self._bound, options=updated)

    def trace(self, **kwargs: Any) -> Trace:
        """The nodes that the program appends; nothing is generated, but the function runs.

        Args:
            **kwargs: Arguments of the function; those that are left out are placeholders, as are all results.  The
                trace ends (`stopped`) where the program decides by one, or gives one to an expression as an option.

        Raises:
            TypeError: the function has no such parameter.
            Exception: what the function raises otherwise.
        """
        self._signature.check_names(kwargs)
        return trace_body(self._body, self._signature.with_placeholders({**self._bound, **kwargs}))

    def cache(self, backend: Any | None = None) -> int:
        """Put what every run begins with, found by a trace, into the prefix cache.

        Args:
            backend: The default one if None.

        Returns:
            How many tokens are in the cache now; 0 where runs have no common beginning.
        """
        options = replace(self._options, start=Concat((*self._options.start.parts, *self.trace().prefix().parts)))
        if backend is not None:
            options = options.updated({"backend": backend})
        return cache_prefix(ProgramRun(do_nothing, BoundCall((), {}), options, self._notice))

    def __repr__(self) -> str:
        return f"<sgl program {self._body.__name__}{self._signature}>"

    def _is_streaming(self, kwargs: dict[str, Any]) -> bool:
        _, values = self._signature.split(kwargs, "run")
        return self._options.updated({"stream": values.get("stream")}).stream

    def _new_run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ProgramRun:
        own, values = self._signature.split(kwargs, "run")
        call = self._signature.bind(args, own, self._bound)
        return ProgramRun(self._body, call, self._options.updated(values), self._notice)

    def _batch_runs(
        self, batch_arguments: Iterable[Any], options: dict[str, Any]
    ) -> tuple[Callable[[int], ProgramRun], int]:
        """What makes the run of an item, and how many items there are; every item is checked."""
        if "stream" in options:
            raise TypeError("run_batch has no option 'stream'; run one program with run(..., stream=True)")
        base = self._options.updated(self._signature.known_options(options, "run_batch"))
        base = replace(base, backend=resolve_backend(base.backend), stream=False)
        items = list(batch_arguments)

        def call_of(index: int) -> BoundCall:
            return self._signature.bind_item(index, items[index], self._bound)

        for index in range(len(items)):
            # Checked now, and bound again when it runs: a long batch keeps nothing for each item that waits.
            call_of(index)
        warmup = PrefixWarmup() if len(items) > 1 and global_config.enable_precache_with_tracing else None
        return (lambda index: ProgramRun(self._body, call_of(index), base, self._notice, warmup)), len(items)


@overload
def function(func: Body, num_api_spec_tokens: int | None = None) -> Function: ...
@overload
def function(func: None = None, num_api_spec_tokens: int | None = None) -> Callable[[Body], Function]: ...
def function(func: Body | None = None, num_api_spec_tokens: int | None = None) -> Function | Callable[[Body], Function]:
    """Make a program of a function, with or without parentheses.

    The function's first parameter, usually called `s`, gets the state; the others are the program's arguments.
    Anything that Python can do may happen in it: loops, conditions, calls of other functions.

        @sgl.function
        def capital(s, country):
            s += f"The capital of {country} is"
            s += sgl.gen("answer", max_tokens=8, stop=".")

        print(capital("France")["answer"])

    An `async def` function awaits what it reads, as in `await s["answer"]`, and needs no thread while it waits.

    Args:
        func: The function.
        num_api_spec_tokens: For vendors that bill by the call: a call asks for at least so many tokens and without the
            stops of its gen, and the constants and gens behind it use up that text as long as it says what they say;
            where it does not, calls are made as without it.  A chat model's reply must hold the whole message, so what
            is appended together is matched together, and asked for up to three times.  Cannot be streamed.  Without
            effect on servers that cache prefixes: a call costs what it generates there.
    """
    options = RunOptions().updated({"num_api_spec_tokens": num_api_spec_tokens})
    return functools.partial(Function, options=options) if func is None else Function(func, options=options)
