"""call_inline: runs a program's function on the state of another program."""

from typing import Any

from sgl.async_state import AsyncProgramState
from sgl.capability_check import check_sampling_supported
from sgl.errors import ArgumentError
from sgl.program_run import Body, is_async
from sgl.program_signature import BoundCall
from sgl.program_state import ProgramState
from sgl.run_options import RunOptions
from sgl.state_base import BaseState, scope_of
from sgl.tracer import TracerState


def call_inline(body: Body, state: BaseState | TracerState, call: BoundCall, options: RunOptions) -> Any:
    """Run a function on a state, with variables of its own.

    Returns:
        What the function returns; for an async function, what it is to be awaited for.

    Raises:
        ArgumentError: an option that an inline call cannot have, or a state of the other kind.
    """
    if isinstance(state, TracerState):
        return body(state, *call.args, **call.kwargs)
    scope = scope_of(state).inline(options.sampling)
    check_sampling_supported(options.sampling, scope.context.backend.capabilities, f"program {body.__name__!r}")
    given = [
        name
        for name, is_given in (
            ("stream", options.stream),
            ("record", options.record),
            ("use_thread", not options.use_thread),
            ("messages", bool(options.start.parts)),
            ("backend", options.backend is not None and options.backend is not scope.context.backend),
        )
        if is_given
    ]
    if given:
        raise ArgumentError(f"{' and '.join(given)} cannot be set for a program that is called inline: its state runs")
    if is_async(body):
        if not isinstance(state, AsyncProgramState):
            raise ArgumentError(f"async program {body.__name__!r} is called inline on the state of a plain program")
        return body(AsyncProgramState(scope), *call.args, **call.kwargs)
    if not isinstance(state, ProgramState):
        raise ArgumentError(
            f"plain program {body.__name__!r} is called inline on the state of an async program, which must not block"
        )
    return body(state.with_scope(scope), *call.args, **call.kwargs)
