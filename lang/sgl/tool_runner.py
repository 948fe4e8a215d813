"""ToolRunner: runs the calls that a model made, and says what came of them."""

import asyncio
from collections.abc import Sequence

from sgl.event_loop import EventLoopThread
from sgl.tools import RESULT_CLOSE, RESULT_OPEN, ToolCall


async def run_calls(calls: Sequence[ToolCall], loop: EventLoopThread) -> str:
    """Run all calls at the same time; what one raises is its `error`.

    Returns:
        The text that tells the model the results, in the order of the calls.
    """
    await asyncio.gather(*(_run_call(call, loop) for call in calls))
    return "".join(RESULT_OPEN + call.shown_result() + RESULT_CLOSE for call in calls)


async def _run_call(call: ToolCall, loop: EventLoopThread) -> None:
    try:
        if call.tool.is_async:
            call.result = await call()
        else:
            call.result = await asyncio.wrap_future(loop.bodies.start(call, name=f"sgl-tool-{call.name}"))
    except Exception as error:
        # The model is told, and the program finds it in the call.
        call.error = error
    call.is_run = True
