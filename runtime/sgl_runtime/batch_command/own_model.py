"""A model in this process, asked as if it were a server."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from starlette.types import ASGIApp

from sgl_runtime.config_flags import config_flags
from sgl_runtime.engine import Engine
from sgl_runtime.serving.factories import Factories
from sgl_runtime.start_options import parse_options


def run_on_own_model(
    flags: Sequence[str],
    work: Callable[[ASGIApp], Coroutine[Any, Any, None]],
    *,
    factories: Factories | None = None,
) -> None:
    """Load a model, and do some work with it.

    Args:
        flags: Options of `sgl serve`, the model's among them.
        work: Is given the application that answers; an interrupt cancels it.
        factories: How the model's parts are built.

    Raises:
        SglRuntimeError: an option is wrong, or the model cannot be loaded.
    """
    options = parse_options("sgl batch", flags)
    given = {flag.name: options.value_of(flag) for flag in config_flags() if flag.name in options.origins}
    with Engine(factories=factories, **given) as engine:
        engine.run_with_application(work)
