"""NodeRunner: does what the nodes of a state say, one after another, on the event loop."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sgl.backends.base import Generation, GenRequest, Message
from sgl.constraints import Constraint
from sgl.errors import ResultError, SglError
from sgl.ir import Gen, Node, RoleBegin, RoleEnd, Select, Text, ToolGen
from sgl.output_reader import OutputReader
from sgl.recording import StateRecorder
from sgl.run_context import RunContext
from sgl.sampling import RUN_DEFAULTS, SamplingParams
from sgl.seeds import Seeds
from sgl.tools import CALL_CLOSE, CALL_MARK, CALL_OPEN
from sgl.transcript import Transcript
from sgl.variable import Variable


class NodeRunner:
    """Owns the transcript of one state.

    Args:
        context: The run.
        transcript: Where the state begins.
        seeds: Seeds of this state's gens.
        recorder: Keeps what the nodes do; None where nothing is recorded.
    """

    def __init__(
        self, *, context: RunContext, transcript: Transcript, seeds: Seeds, recorder: StateRecorder | None
    ) -> None:
        self._context = context
        self._seeds = seeds
        self.transcript = transcript
        self.recorder = recorder
        self._reader = OutputReader(context)
        self._is_first_call = True
        self._last_output_ids: Sequence[int] = ()
        self._captures: dict[Variable, int] = {}

    async def run(self, node: Node, variable: Variable | None, sampling: SamplingParams) -> None:
        """Run one node; a gen or a select fills its variable.

        Args:
            node: The node.
            variable: What it fills.
            sampling: Settings for a gen that does not say its own.
        """
        if self.recorder is None or isinstance(node, Text):
            await self._run(node, variable, sampling)
            return
        started_s, start = self.recorder.now_s(), len(self.transcript.text)
        try:
            await self._run(node, variable, sampling)
        except BaseException as error:
            with self._context.progress.look():
                record = self.recorder.node(node, variable, self.transcript.text[start:], started_s)
                record.error = f"{type(error).__name__}: {error}"
            raise
        with self._context.progress.look():
            record = self.recorder.node(node, variable, self.transcript.text[start:], started_s)
            if isinstance(node, Gen):
                record.prompt_ids = list(self.transcript.prompt.ids[: record.counts["prompt_tokens"]])
                record.output_ids = list(self._last_output_ids)

    async def _run(self, node: Node, variable: Variable | None, sampling: SamplingParams) -> None:
        match node:
            case Text():
                self.append(node.value)
            case ToolGen():
                assert variable is not None, "every gen has a variable"
                await self._generate_with_tools(node, variable, sampling)
            case Gen():
                assert variable is not None, "every gen has a variable"
                await self._generate(node, variable, sampling)
            case Select():
                assert variable is not None, "every select has a variable"
                await self._select(node, variable)
            case RoleBegin():
                affixes = await self._context.backend.role_affixes(self.transcript.messages, node.role)
                with self._context.progress.change():
                    self.transcript.begin_message(node.role, affixes)
            case RoleEnd():
                with self._context.progress.change():
                    self.transcript.end_message()

    def append(self, text: str) -> None:
        """Put constant text behind."""
        with self._context.progress.change():
            self.transcript.append(text)
            if self.recorder is not None:
                self.recorder.text(text)

    def append_joined(self, text: str, messages: list[Message]) -> None:
        """Put the text of a joined branch behind, and the messages that are in it."""
        with self._context.progress.change():
            self.transcript.append_joined(text, messages)
            if self.recorder is not None:
                self.recorder.text(text, kind="joined")

    async def commit(self) -> None:
        """Put the prompt into the prefix cache, unless there is nothing in it that is not there."""
        prompt = self.transcript.prompt
        if prompt.pending and prompt.pending_ids is None:
            self.transcript.prompt = await self._context.backend.commit(prompt)

    def begin_capture(self, variable: Variable) -> None:
        """The variable gets the text from here on."""
        self._captures[variable] = len(self.transcript.text)

    def end_capture(self, variable: Variable) -> None:
        """The variable's text ends here."""
        start = self._captures.pop(variable)
        with self._context.progress.change():
            variable.finish(self.transcript.text[start:], {})

    async def _generate(self, node: Gen, variable: Variable, base: SamplingParams) -> None:
        await self._prepare("generate from")
        sampling = self._effective_sampling(node, base)
        generation = await self._call(node, sampling, node.constraint, variable)
        self._warn_when_cut(node, base, generation)
        text, meta = generation.text, generation.meta
        await self._settle(variable, meta, self._reader.value(node, text, meta))

    async def _generate_with_tools(self, node: ToolGen, variable: Variable, base: SamplingParams) -> None:
        """Free text up to the mark of a call, where the model may choose; then the calls, under their constraint."""
        await self._prepare("generate from")
        sampling = self._effective_sampling(node, base)
        start = len(self.transcript.text)
        metas: list[dict[str, Any]] = []
        text, calls_text = "", None
        if node.toolset.choice == "auto":
            stops = (*(sampling.stop or ()), CALL_MARK)
            free = await self._call(node, replace(sampling, stop=stops), None, variable)
            metas.append(free.meta)
            text = free.text
        if not metas or metas[0]["finish_reason"].get("matched") == CALL_MARK:
            self._append_output(CALL_OPEN, start, variable)
            # The caller's stops are for text; a call ends by its grammar.
            called = await self._call(node, replace(sampling, stop=()), node.constraint, variable, start=start)
            metas.append(called.meta)
            calls_text = called.text
            self._append_output(CALL_CLOSE, start, variable)
        meta = {**metas[-1], "requests": metas}
        await self._settle(variable, meta, self._calls_value(node, variable, (text, calls_text), meta))

    async def _calls_value(
        self, node: ToolGen, variable: Variable, said: tuple[str, str | None], meta: dict[str, Any]
    ) -> Any:
        calls = self._reader.calls(node, *said, meta)
        if node.toolset.is_automatic and calls.calls:
            self.append(await self._reader.results(calls))
        return await self._reader.post_processed(node, calls, variable.text)

    def _append_output(self, text: str, start: int, variable: Variable) -> None:
        """Put text behind that belongs to the output of a gen that goes on."""
        with self._context.progress.change():
            self.transcript.append(text)
            variable.grow(self.transcript.text[start:], variable.meta)

    async def _call(
        self,
        node: Gen,
        sampling: SamplingParams,
        constraint: Constraint | None,
        variable: Variable,
        *,
        start: int | None = None,
    ) -> Generation:
        """One request; its text is appended as it comes.

        Args:
            node: Whose request it is.
            sampling: Complete settings.
            constraint: What the output must match.
            variable: Shows the output as it grows.
            start: Where the variable's text begins; here if None.
        """
        request = GenRequest(
            prompt=self.transcript.prompt,
            sampling=sampling,
            constraint=constraint,
            dialogue=self.transcript.dialogue() if self._context.backend.capabilities.takes_messages else None,
        )
        here = len(self.transcript.text)
        begin = here if start is None else start
        generation: Generation | None = None
        try:
            async with asyncio.timeout(node.timeout_s):
                if self._context.stream:
                    async with aclosing(self._context.backend.generate_stream(request)) as stream:
                        async for generation in stream:
                            self._show(generation, here, begin, variable)
                else:
                    generation = await self._context.backend.generate(request)
                    self._show(generation, here, begin, variable)
        except TimeoutError as error:
            raise SglError(f"no complete output within {node.timeout_s} seconds") from error
        assert generation is not None, "a backend's stream ends with a complete output"
        assert generation.prompt is not None, "a backend's stream ends with a complete output"
        self._last_output_ids = generation.output_ids
        with self._context.progress.look():
            self.transcript.prompt = generation.prompt
            self._context.usage.add_call(generation.meta)
        return generation

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

    def _show(self, generation: Generation, here: int, begin: int, variable: Variable) -> None:
        progress = self._context.progress
        # A whole output wakes its readers when it has become the variable's value, right after this.
        with progress.change() if self._context.stream else progress.look():
            text = self.transcript.text
            if not generation.text.startswith(text[here:]):
                raise SglError(f"the backend took back streamed text: {text[here:]!r} became {generation.text!r}")
            self.transcript.text = text[:here] + generation.text
            variable.grow(self.transcript.text[begin:], generation.meta)

    async def _select(self, node: Select, variable: Variable) -> None:
        await self._prepare("select behind")
        selection = await self._context.backend.select(self.transcript.prompt, node.choices, node.method)
        choice = node.choices[selection.index]
        with self._context.progress.change():
            self.transcript.append(choice)
            self._context.usage.add_call(selection.meta)
            variable.finish(choice, selection.meta)

    def _effective_sampling(self, node: Gen, base: SamplingParams) -> SamplingParams:
        sampling = node.sampling.over(base).over(RUN_DEFAULTS)
        seed = self._seeds.next_gen()
        if node.sampling.seed is None and sampling.seed != seed:
            sampling = replace(sampling, seed=seed)
        if node.constraint is not None and node.constraint.extra_stops:
            sampling = replace(sampling, stop=(*(sampling.stop or ()), *node.constraint.extra_stops))
        return sampling

    def _warn_when_cut(self, node: Gen, base: SamplingParams, generation: Generation) -> None:
        said = node.sampling.max_new_tokens is not None or base.max_new_tokens is not None
        if not said and generation.meta["finish_reason"]["type"] == "length":
            self._context.notice.say(node.name, node.source)

    async def _prepare(self, purpose: str) -> None:
        if self.transcript.prompt.is_empty:
            raise SglError(f"there is nothing to {purpose}: append text before it")
        if self._is_first_call:
            self._is_first_call = False
            if self._context.warmup is not None:
                await self._context.warmup.wait(self._context.backend, self.transcript.prompt)
