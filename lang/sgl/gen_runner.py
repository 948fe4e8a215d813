"""GenRunner: sends what the gens of a state ask for, and fills their variables."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sgl.backends.base import Generation, GenRequest
from sgl.constraints import Constraint
from sgl.errors import ResultError, SglError
from sgl.ir import Gen, Node, ToolGen
from sgl.output_reader import OutputReader
from sgl.reasoning import published_marks
from sgl.run_context import RunContext
from sgl.sampling import RUN_DEFAULTS, SamplingParams
from sgl.seeds import Seeds
from sgl.shown_output import ShownOutput
from sgl.speculation import Speculation
from sgl.speculative_calls import SpeculativeCalls
from sgl.tools import CALL_CLOSE, CALL_MARK, CALL_OPEN
from sgl.transcript import Transcript
from sgl.variable import Variable


class GenRunner:
    """Runs the gens of one state.

    Args:
        context: The run.
        transcript: What the state has come to.
        seeds: Seeds of this state's gens.
        speculation: What the model said beyond what was asked; None where calls ask for what they need.

    Attributes:
        last_output_ids: The exact ids of the last output.
    """

    def __init__(
        self, *, context: RunContext, transcript: Transcript, seeds: Seeds, speculation: Speculation | None
    ) -> None:
        self._context = context
        self._transcript = transcript
        self._seeds = seeds
        self._reader = OutputReader(context)
        self._speculative = None
        if speculation is not None:
            self._speculative = SpeculativeCalls(context, transcript, speculation)
        self.last_output_ids: Sequence[int] = ()

    async def run(
        self,
        node: Gen,
        variable: Variable,
        base: SamplingParams,
        *,
        thinking: Variable | None,
        following: Sequence[Node],
    ) -> None:
        """Run one gen.

        Args:
            node: The gen.
            variable: Gets its output.
            base: Settings of the run.
            thinking: Gets what the model thinks before; None where that is not told apart.
            following: The nodes that were appended together with it and stand behind it.
        """
        sampling = self._effective_sampling(node, base)
        if thinking is not None and not self._context.backend.capabilities.takes_messages:
            await self._think(node, thinking, sampling)
            # The answer draws for itself.
            sampling = self._effective_sampling(node, base)
            thinking = None
        if isinstance(node, ToolGen):
            await self._generate_with_tools(node, variable, sampling)
            return
        taken = None
        if self._speculative is not None:
            taken = await self._speculative.take(node, sampling, self._with_settings(following, base))
        if taken is not None:
            text, meta = taken
            self.last_output_ids = ()
            self._append_output(text, len(self._transcript.text), variable, meta)
            self._warn_when_cut(node, base, meta)
        else:
            generation = await self._call(node, sampling, node.constraint, variable, thinking=thinking)
            text, meta = generation.text, generation.meta
            self._warn_when_cut(node, base, meta)
            if generation.others:
                await self._settle(variable, meta, self._values(node, generation))
                return
        await self._settle(variable, meta, self._reader.value(node, text, meta))

    async def _values(self, node: Gen, generation: Generation) -> list[Any]:
        """The values of all outputs of a gen."""
        samples = generation.meta["samples"]
        texts = [generation.text, *(other.text for other in generation.others)]
        return [await self._reader.value(node, text, meta) for text, meta in zip(texts, samples, strict=True)]

    async def _think(self, node: Gen, variable: Variable, sampling: SamplingParams) -> None:
        """Free text up to the mark that ends the thinking, which is then put behind, also where the limit cut it."""
        assert node.thinking is not None, "the gen thinks"
        marks = node.thinking.marks or published_marks(await self._context.backend.get_model_info())
        begin = len(self._transcript.text)
        meta: dict[str, Any] = {}
        text = ""
        is_over = self._transcript.text.rstrip().endswith(marks.closing)
        if not self._transcript.has_thought and not is_over:
            with self._context.progress.change():
                self._transcript.begin_thinking(marks.opening)
            limit = node.thinking.max_tokens or sampling.max_new_tokens
            # Several answers share the thinking.
            settings = replace(sampling, stop=(marks.closing,), max_new_tokens=limit, n=1)
            generation = await self._call(node, settings, None, variable, shows_special_tokens=True)
            text, meta = generation.text, generation.meta
            with self._context.progress.change():
                self._transcript.append(marks.closing + marks.answer)
                self._transcript.note_thinking(begin, len(self._transcript.text))
        with self._context.progress.change():
            variable.finish(text, meta)

    async def _generate_with_tools(self, node: ToolGen, variable: Variable, sampling: SamplingParams) -> None:
        """Free text up to the mark of a call, where the model may choose; then the calls, under their constraint."""
        if sampling.n != 1:
            raise SglError(f"the run sets n = {sampling.n}, but a gen with tools has one output; say n=1 in the gen")
        start = len(self._transcript.text)
        metas: list[dict[str, Any]] = []
        text, calls_text = "", None
        if node.toolset.choice == "auto":
            stops = (*(sampling.stop or ()), CALL_MARK)
            free = await self._call(node, replace(sampling, stop=stops), None, variable)
            metas.append(free.meta)
            text = free.text
        if not metas or metas[0]["finish_reason"].get("matched") == CALL_MARK:
            self._append_output(CALL_OPEN, start, variable, variable.meta)
            # The caller's stops are for text; a call ends by its grammar.
            called = await self._call(node, replace(sampling, stop=()), node.constraint, variable, start=start)
            metas.append(called.meta)
            calls_text = called.text
            self._append_output(CALL_CLOSE, start, variable, variable.meta)
        meta = {**metas[-1], "requests": metas}
        await self._settle(variable, meta, self._calls_value(node, variable, (text, calls_text), meta))

    async def _calls_value(
        self, node: ToolGen, variable: Variable, said: tuple[str, str | None], meta: dict[str, Any]
    ) -> Any:
        calls = self._reader.calls(node, *said, meta)
        if node.toolset.is_automatic and calls.calls:
            results = await self._reader.results(calls)
            with self._context.progress.change():
                self._transcript.append(results)
        return await self._reader.post_processed(node, calls, variable.text)

    def _append_output(self, text: str, start: int, variable: Variable, meta: dict[str, Any]) -> None:
        """Put text behind that belongs to the output of a gen without being the answer to a request of its own."""
        with self._context.progress.change():
            self._transcript.append(text)
            variable.grow(self._transcript.text[start:], meta)

    async def _call(
        self,
        node: Gen,
        sampling: SamplingParams,
        constraint: Constraint | None,
        variable: Variable,
        *,
        start: int | None = None,
        thinking: Variable | None = None,
        shows_special_tokens: bool = False,
    ) -> Generation:
        """One request; its text is appended as it comes.

        Args:
            node: Whose request it is.
            sampling: Complete settings.
            constraint: What the output must match.
            variable: Shows the output as it grows.
            start: Where the variable's text begins; here if None.
            thinking: Shows thinking that comes in the same reply.
            shows_special_tokens: Whether special tokens are text.
        """
        context = self._context
        takes_messages = context.backend.capabilities.takes_messages
        request = GenRequest(
            prompt=self._transcript.prompt,
            sampling=sampling,
            constraint=constraint,
            dialogue=self._transcript.dialogue() if takes_messages else None,
            media=self._transcript.media if self._transcript.spans and not takes_messages else (),
            shows_special_tokens=shows_special_tokens or context.settings.shows_special_tokens,
        )
        shown = ShownOutput(node, self._transcript, variable, start=start, thinking=thinking)
        generation: Generation | None = None
        try:
            async with asyncio.timeout(node.timeout_s):
                if context.stream:
                    async with aclosing(context.backend.generate_stream(request)) as stream:
                        async for generation in stream:
                            with context.progress.change():
                                shown.show(generation)
                else:
                    generation = await context.backend.generate(request)
                    # Its readers wake when it has become the variable's value, right after this.
                    with context.progress.look():
                        shown.show(generation)
        except TimeoutError as error:
            raise SglError(f"no complete output within {node.timeout_s} seconds") from error
        assert generation is not None, "a backend's stream ends with a complete output"
        assert generation.prompt is not None, "a backend's stream ends with a complete output"
        self.last_output_ids = generation.output_ids
        with context.progress.look():
            self._transcript.prompt = generation.prompt
            context.usage.add_call(generation.meta)
            note_lowered_limit(generation.meta, sampling)
            return shown.finished(generation)

    async def _settle(self, variable: Variable, meta: dict[str, Any], value: Awaitable[Any]) -> None:
        """Give the variable its value; text of which none can be made does not end the state."""
        try:
            read = await value
        except ResultError as error:
            with self._context.progress.change():
                variable.finish_unreadable(error, meta, text=variable.text)
            return
        with self._context.progress.change():
            variable.finish(read, meta, text=variable.text)

    def _with_settings(self, nodes: Sequence[Node], base: SamplingParams) -> list[tuple[Node, SamplingParams]]:
        return [(node, self._settings_of(node, base) if isinstance(node, Gen) else base) for node in nodes]

    def _effective_sampling(self, node: Gen, base: SamplingParams) -> SamplingParams:
        sampling = self._settings_of(node, base)
        seed = self._seeds.next_gen()
        if node.sampling.seed is None and sampling.seed != seed:
            sampling = replace(sampling, seed=seed)
        return sampling

    def _settings_of(self, node: Gen, base: SamplingParams) -> SamplingParams:
        """Complete settings, but for the seed."""
        sampling = node.sampling.over(base).over(RUN_DEFAULTS)
        extra = (*(node.constraint.extra_stops if node.constraint is not None else ()), *self._context.settings.stops)
        return replace(sampling, stop=(*(sampling.stop or ()), *extra)) if extra else sampling

    def _warn_when_cut(self, node: Gen, base: SamplingParams, meta: dict[str, Any]) -> None:
        said = node.sampling.max_new_tokens is not None or base.max_new_tokens is not None
        if not said and meta["finish_reason"]["type"] == "length":
            self._context.notice.say(node.name, node.source)


def note_lowered_limit(meta: dict[str, Any], sampling: SamplingParams) -> None:
    """Say in the meta info that the context, and not the limit that was asked for, ended an output."""
    limit, count = sampling.max_new_tokens, meta.get("completion_tokens")
    is_lowered = limit is not None and count is not None and count < limit
    if is_lowered and meta["finish_reason"]["type"] == "length":
        meta["note"] = f"max_tokens {limit} was lowered to {count}: the context holds no more"
