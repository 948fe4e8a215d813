"""@function: makes a program of a Python function whose first parameter is the state."""

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, overload

from sgl.batch import BatchRun
from sgl.default_backend import resolve_backend
from sgl.errors import ArgumentError, reject
from sgl.program_run import Body, ProgramCall, ProgramRun
from sgl.program_state import ProgramState
from sgl.run_context import DefaultLimitNotice
from sgl.run_options import RUN_OPTIONS, RunOptions

OnError = Literal["raise", "collect"]


class Function:
    """A program, made by `@sgl.function`.

    Keywords of `run` are told apart by name: a keyword that is a parameter of the function goes to the function,
    whatever its name; the rest must be run options.  A program that has a parameter called `temperature` gets its
    sampling temperature from `options(temperature=...)`.

    Args:
        body: The function; its first parameter takes the state.
        bound: Arguments that are given already.
        options: Run options that are given already.
    """

    def __init__(self, body: Body, *, bound: dict[str, Any] | None = None, options: RunOptions | None = None) -> None:
        parameters = list(inspect.signature(body).parameters.values())
        takes_state = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if not parameters or parameters[0].kind not in takes_state:
            raise ArgumentError(f"program {body.__name__!r} needs a first parameter for its state, usually called s")
        self._body = body
        self._bound = bound or {}
        self._options = options or RunOptions()
        self._signature = inspect.Signature(parameters[1:])
        self._takes_any_name = parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
        self._notice = DefaultLimitNotice(body.__name__)
        functools.update_wrapper(self, body)

    def run(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Run the program once; the function runs in the calling thread.

        Returns when the function does, so generation may go on; reading the state waits for it.  With `stream=True` the
        function runs in a thread of its own, and this returns at once.

        Args:
            *args: Arguments of the function, behind the state.
            **kwargs: Arguments of the function by name, and run options.  For gens that do not say their own:
                max_new_tokens (128), stop, stop_token_ids, temperature (1.0), top_p (1.0), top_k (-1), min_p (0.0),
                seed, ignore_eos (False), return_logprob (False).  And backend (the default one); stream (False);
                use_thread (True; False: appending waits, and raises where it fails).

        Raises:
            TypeError: the arguments do not fit the function.
            ArgumentError: a run option has a wrong value.
            Exception: what the function raises, as it is.
        """
        own, options = self._split(kwargs)
        run = self._new_run(self._bind(args, own, self._options.updated(self._known(options, "run"))))
        if run.is_streaming:
            run.start_body()
        else:
            run.run_body()
        return run.state

    __call__ = run

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
            num_threads: Most items that run at a time; "auto" takes 16 for each core, at least 96.
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
        if "stream" in options:
            raise TypeError("run_batch has no option 'stream'; run one program with run(..., stream=True)")
        base = self._options.updated(self._known(options, "run_batch"))
        base = replace(base, backend=resolve_backend(base.backend), stream=False)
        calls = [self._bind_item(index, item, base) for index, item in enumerate(batch_arguments)]
        batch = BatchRun(
            make_run=lambda index: self._new_run(calls[index]),
            num_items=len(calls),
            num_threads=num_threads,
            on_error=on_error,
            title=self._body.__name__ if progress_bar else None,
        )
        return batch.results() if generator_style else list(batch.results())

    def bind(self, **kwargs: Any) -> "Function":
        """The same program with some arguments given; those of a later call win over them.

        Raises:
            TypeError: the function has no such parameter.
        """
        self._checked_binding(lambda: self._signature.bind_partial(**kwargs), "bind")
        return Function(self._body, bound={**self._bound, **kwargs}, options=self._options)

    def options(self, **options: Any) -> "Function":
        """The same program with other run options, as in `program.options(temperature=0.0, backend=judge)`.

        Raises:
            TypeError: there is no such option.
            ArgumentError: an option has a wrong value.
        """
        updated = self._options.updated(self._known(options, "options"))
        return Function(self._body, bound=self._bound, options=updated)

    def __repr__(self) -> str:
        return f"<sgl program {self._body.__name__}{self._signature}>"

    def _new_run(self, call: ProgramCall) -> ProgramRun:
        return ProgramRun(self._body, call, self._notice)

    def _split(self, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Keywords for the function, and keywords that must be run options."""
        own: dict[str, Any] = {}
        options: dict[str, Any] = {}
        for name, value in kwargs.items():
            is_own = name in self._signature.parameters or (self._takes_any_name and name not in RUN_OPTIONS)
            (own if is_own else options)[name] = value
        return own, options

    def _known(self, options: dict[str, Any], method: str) -> dict[str, Any]:
        for name in options:
            if name not in RUN_OPTIONS:
                raise TypeError(
                    f"{method} of program {self._body.__name__!r} got {name!r}, which is neither a parameter of the "
                    f"program ({', '.join(self._signature.parameters) or 'it has none'}) nor a run option "
                    f"({', '.join(RUN_OPTIONS)})"
                )
        return options

    def _bind(self, args: tuple[Any, ...], own: dict[str, Any], options: RunOptions, where: str = "run") -> ProgramCall:
        def bind() -> inspect.BoundArguments:
            taken = self._signature.bind_partial(*args, **own).arguments
            missing = {name: value for name, value in self._bound.items() if name not in taken}
            return self._signature.bind(*args, **own, **missing)

        arguments = self._checked_binding(bind, where)
        return ProgramCall(arguments.args, arguments.kwargs, options)

    def _bind_item(self, index: int, item: Any, options: RunOptions) -> ProgramCall:
        where = f"item {index} of run_batch"
        if isinstance(item, dict):
            return self._bind((), item, options, where)
        if isinstance(item, tuple):
            return self._bind(item, {}, options, where)
        raise reject(where, item, "a dict of arguments by name, or a tuple of arguments in order")

    def _checked_binding(self, bind: Callable[[], inspect.BoundArguments], where: str) -> inspect.BoundArguments:
        try:
            return bind()
        except TypeError as error:
            raise TypeError(
                f"{where}: arguments do not fit program {self._body.__name__!r}{self._signature}: {error}"
            ) from None


@overload
def function(body: Body) -> Function: ...
@overload
def function() -> Callable[[Body], Function]: ...
def function(body: Body | None = None) -> Function | Callable[[Body], Function]:
    """Make a program of a function, with or without parentheses.

    The function's first parameter, usually called `s`, gets the state; the others are the program's arguments.
    Anything that Python can do may happen in it: loops, conditions, calls of other functions.

        @sgl.function
        def capital(s, country):
            s += f"The capital of {country} is"
            s += sgl.gen("answer", max_tokens=8, stop=".")

        print(capital("France")["answer"])
    """
    return Function if body is None else Function(body)
