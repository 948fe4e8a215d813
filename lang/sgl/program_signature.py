"""ProgramSignature: the arguments of a program, told apart from run options and checked."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sgl.errors import ArgumentError, reject
from sgl.run_options import RUN_OPTIONS
from sgl.tracer import Placeholder


@dataclass(frozen=True)
class BoundCall:
    """Arguments that fit.

    Attributes:
        args, kwargs: What the function gets behind the state.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class ProgramSignature:
    """The parameters of a program's function behind the state.

    Args:
        body: The function.

    Raises:
        ArgumentError: it has no parameter for the state.
    """

    def __init__(self, body: Callable[..., Any]) -> None:
        parameters = list(inspect.signature(body).parameters.values())
        takes_state = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if not parameters or parameters[0].kind not in takes_state:
            raise ArgumentError(f"program {body.__name__!r} needs a first parameter for its state, usually called s")
        self._program = body.__name__
        self._signature = inspect.Signature(parameters[1:])
        self._takes_any_name = parameters[-1].kind is inspect.Parameter.VAR_KEYWORD

    def __str__(self) -> str:
        return str(self._signature)

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters."""
        return list(self._signature.parameters)

    def split(self, kwargs: dict[str, Any], method: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Keywords for the function, and run options.

        Raises:
            TypeError: a keyword is neither.
        """
        own: dict[str, Any] = {}
        options: dict[str, Any] = {}
        for name, value in kwargs.items():
            is_own = name in self._signature.parameters or (self._takes_any_name and name not in RUN_OPTIONS)
            (own if is_own else options)[name] = value
        return own, self.known_options(options, method)

    def known_options(self, options: dict[str, Any], method: str) -> dict[str, Any]:
        """The options, all of which are run options.

        Raises:
            TypeError: one is not.
        """
        for name in options:
            if name not in RUN_OPTIONS:
                raise TypeError(
                    f"{method} of program {self._program!r} got {name!r}, which is neither a parameter of the "
                    f"program ({', '.join(self.parameters) or 'it has none'}) nor a run option "
                    f"({', '.join(RUN_OPTIONS)})"
                )
        return options

    def bind(self, args: tuple[Any, ...], own: dict[str, Any], given: dict[str, Any], where: str = "run") -> BoundCall:
        """Fit a call.

        Args:
            args, own: What the caller gives, by place and by name.
            given: What was given before; the caller's win.
            where: For errors.

        Raises:
            TypeError: the arguments do not fit.
        """

        def fit() -> inspect.BoundArguments:
            taken = self._signature.bind_partial(*args, **own).arguments
            missing = {name: value for name, value in given.items() if name not in taken}
            return self._signature.bind(*args, **own, **missing)

        arguments = self._checked(fit, where)
        return BoundCall(arguments.args, arguments.kwargs)

    def bind_item(self, index: int, item: Any, given: dict[str, Any]) -> BoundCall:
        """Fit an item of a batch: a dict of arguments by name, or a tuple in order."""
        where = f"item {index} of run_batch"
        if isinstance(item, dict):
            return self.bind((), item, given, where)
        if isinstance(item, tuple):
            return self.bind(item, {}, given, where)
        raise reject(where, item, "a dict of arguments by name, or a tuple of arguments in order")

    def with_placeholders(self, given: dict[str, Any]) -> BoundCall:
        """A call for a trace: what is not given is a placeholder, also where it has a default."""
        named = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        missing = {
            name: Placeholder(name)
            for name, parameter in self._signature.parameters.items()
            if name not in given and parameter.kind not in named
        }
        return self.bind((), {**missing, **given}, {}, "trace")

    def check_names(self, kwargs: dict[str, Any]) -> None:
        """Check arguments that are given ahead of a call.

        Raises:
            TypeError: the function has no such parameter.
        """
        self._checked(lambda: self._signature.bind_partial(**kwargs), "bind")

    def _checked(self, fit: Callable[[], inspect.BoundArguments], where: str) -> inspect.BoundArguments:
        try:
            return fit()
        except TypeError as error:
            raise TypeError(f"{where}: arguments do not fit program {self._program!r}{self}: {error}") from None
