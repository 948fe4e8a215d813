"""OutputReader: makes the values of variables out of what gens generated."""

import asyncio
from collections.abc import Callable
from typing import Any

from sgl.ir import Gen, ToolGen
from sgl.output_types import OutputType
from sgl.results import Place, read_text, unreadable
from sgl.run_context import RunContext
from sgl.tool_runner import run_calls
from sgl.tools import ToolCalls


class OutputReader:
    """Reads outputs as what their gens say.

    Args:
        context: The run.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context

    async def value(self, node: Gen, text: str, meta: dict[str, Any]) -> Any:
        """The value of a gen's variable.

        Raises:
            ResultError: none can be made of the text.
        """
        value: Any = text
        if node.output_type is not None:
            value = read_text(node.output_type, text, meta, self._place(node), is_generated_as=True)
        return await self.post_processed(node, value, text)

    def calls(self, node: ToolGen, text: str, calls_text: str | None, meta: dict[str, Any]) -> ToolCalls:
        """The calls of tools that a gen came to.

        Args:
            node: The gen.
            text: What was written before them.
            calls_text: What stands between the marks; None where nothing was called.
            meta: Meta info of the request for the calls.

        Raises:
            ResultError: the calls cannot be read.
        """
        if calls_text is None:
            return ToolCalls(text)
        kind = OutputType("tool call", node.constraint, node.toolset.read)
        return ToolCalls(text, read_text(kind, calls_text, meta, self._place(node), is_generated_as=True))

    async def results(self, calls: ToolCalls) -> str:
        """Run the calls; the text that tells the model what came of them."""
        return await run_calls(calls.calls, self._context.loop)

    async def post_processed(self, node: Gen, value: Any, text: str) -> Any:
        """What the gen's `post` makes of a value.

        Raises:
            ResultError: it raised.
        """
        if node.post is None:
            return value
        post: Callable[[Any], Any] = node.post
        try:
            # In a thread: what a user's function waits for must not hold up the other states.
            return await asyncio.wrap_future(self._context.loop.bodies.start(lambda: post(value), name="sgl-post"))
        except Exception as error:
            what = f"{text!r}, for which post raised {type(error).__name__}: {error}"
            raise unreadable(what, text, self._place(node)) from error

    def _place(self, node: Gen) -> Place:
        return Place(self._context.program, node.name, node.source)
