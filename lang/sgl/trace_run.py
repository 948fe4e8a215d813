"""Tracing a program's function, and putting what all its runs begin with into the prefix cache."""

from typing import Any

from sgl.errors import ArgumentError, TraceError
from sgl.event_loop import event_loop_thread
from sgl.program_run import Body, ProgramRun, is_async
from sgl.program_signature import BoundCall
from sgl.tracer import Placeholder, Trace, TracerState


def trace_body(body: Body, call: BoundCall) -> Trace:
    """Run a function once on a tracer.

    Raises:
        Exception: what the function raises, unless it is that a placeholder has no value, or that an expression cannot
            be made while arguments are placeholders.
    """
    trace = Trace()
    try:
        result = body(TracerState(trace), *call.args, **call.kwargs)
        trace.ret_value = event_loop_thread().wait(result) if is_async(body) else result
    except TraceError as error:
        trace.stopped = error
    except ArgumentError as error:
        if not any(isinstance(value, Placeholder) for value in (*call.args, *call.kwargs.values())):
            raise
        trace.stopped = TraceError(f"an expression depends on what a trace does not know: {error}")
    return trace


def cache_prefix(run: ProgramRun) -> int:
    """Put what a run begins with into the prefix cache; the number of its tokens."""
    return event_loop_thread().wait(run.commit_start())


def do_nothing(state: Any) -> None:
    """The body of a run that is only there for what it begins with."""
