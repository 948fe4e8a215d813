"""NodeRunner: does what the nodes of a state say, one after another, on the event loop."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sgl.backends.base import Generation, GenRequest, Message
from sgl.errors import ResultError, SglError
from sgl.ir import Gen, Node, RoleBegin, RoleEnd, Select, Text
from sgl.results import Place, read_text, unreadable
from sgl.run_context import RunContext
from sgl.sampling import RUN_DEFAULTS, SamplingParams
from sgl.seeds import Seeds
from sgl.transcript import Transcript
from sgl.variable import Variable


class NodeRunner:
    """Owns the transcript of one state.

    Args:
        context: The run.
        transcript: Where the state begins.
        seeds: Seeds of this state's gens.
    """

    def __init__(self, *, context: RunContext, transcript: Transcript, seeds: Seeds) -> None:
        self._context = context
        self._seeds = seeds
        self.transcript = transcript
        self._captures: dict[Variable, int] = {}

    async def run(self, node: Node, variable: Variable | None, sampling: SamplingParams) -> None:
        """Run one node; a gen or a select fills its variable.

        Args:
            node: The node.
            variable: What it fills.
            sampling: Settings for a gen that does not say its own.
        """
        match node:
            case Text():
                self.append(node.value)
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

    def append(self, text: str, messages: list[Message] | None = None) -> None:
        """Put text behind, and the messages that are in it."""
        with self._context.progress.change():
            self.transcript.append(text)
            self.transcript.messages.extend(messages or [])

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
        self._require_prompt("generate from")
        sampling = self._effective_sampling(node, base)
        request = GenRequest(prompt=self.transcript.prompt, sampling=sampling, constraint=node.constraint)
        start = len(self.transcript.text)
        generation: Generation | None = None
        if self._context.stream:
            async with aclosing(self._context.backend.generate_stream(request)) as stream:
                async for generation in stream:
                    self._show(generation, start, variable)
        else:
            generation = await self._context.backend.generate(request)
            self._show(generation, start, variable)
        assert generation is not None, "a backend's stream ends with a complete output"
        assert generation.prompt is not None, "a backend's stream ends with a complete output"
        self._warn_when_cut(node, base, generation)
        with self._context.progress.change():
            self.transcript.prompt = generation.prompt
        await self._finish(node, generation, variable)

    async def _finish(self, node: Gen, generation: Generation, variable: Variable) -> None:
        """Give the variable its value; text that is no value of its type does not end the state."""
        text, meta = generation.text, generation.meta
        place = Place(self._context.program, node.name, node.source)
        value: Any = text
        error: ResultError | None = None
        try:
            if node.output_type is not None:
                value = read_text(node.output_type, text, meta, place, is_generated_as=True)
            if node.post is not None:
                value = await self._post_process(node.post, value, text, place)
        except ResultError as raised:
            error = raised
        with self._context.progress.change():
            if error is None:
                variable.finish(value, meta, text=text)
            else:
                variable.finish_unreadable(error, meta, text=text)

    async def _post_process(self, post: Callable[[Any], Any], value: Any, text: str, place: Place) -> Any:
        try:
            # In a thread: what a user's function waits for must not hold up the other states.
            return await asyncio.wrap_future(self._context.loop.bodies.start(lambda: post(value), name="sgl-post"))
        except Exception as error:
            raise unreadable(f"{text!r}, for which post raised {type(error).__name__}: {error}", text, place) from error

    def _show(self, generation: Generation, start: int, variable: Variable) -> None:
        with self._context.progress.change():
            text = self.transcript.text
            if not generation.text.startswith(text[start:]):
                raise SglError(f"the backend took back streamed text: {text[start:]!r} became {generation.text!r}")
            self.transcript.text = text[:start] + generation.text
            variable.grow(generation.text, generation.meta)

    async def _select(self, node: Select, variable: Variable) -> None:
        self._require_prompt("select behind")
        selection = await self._context.backend.select(self.transcript.prompt, node.choices, node.method)
        choice = node.choices[selection.index]
        with self._context.progress.change():
            self.transcript.append(choice)
            variable.finish(choice, selection.meta)

    def _effective_sampling(self, node: Gen, base: SamplingParams) -> SamplingParams:
        sampling = node.sampling.over(base).over(RUN_DEFAULTS)
        seed = self._seeds.next_gen()
        if node.sampling.seed is None:
            sampling = replace(sampling, seed=seed)
        if node.constraint is not None and node.constraint.extra_stops:
            sampling = replace(sampling, stop=(*(sampling.stop or ()), *node.constraint.extra_stops))
        return sampling

    def _warn_when_cut(self, node: Gen, base: SamplingParams, generation: Generation) -> None:
        said = node.sampling.max_new_tokens is not None or base.max_new_tokens is not None
        if not said and generation.meta["finish_reason"]["type"] == "length":
            self._context.notice.say(node.name, node.source)

    def _require_prompt(self, purpose: str) -> None:
        if self.transcript.prompt.is_empty:
            raise SglError(f"there is nothing to {purpose}: append text before it")
