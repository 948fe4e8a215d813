"""NodeRunner: does what the nodes of a state say, one after another, on the event loop."""

from collections.abc import Sequence

from sgl.backends.base import RoleAffixes
from sgl.errors import SglError
from sgl.gen_runner import GenRunner
from sgl.ir import Gen, Media, Node, Role, RoleBegin, RoleEnd, Select, Text
from sgl.recording import StateRecorder
from sgl.run_context import RunContext
from sgl.sampling import SamplingParams
from sgl.seeds import Seeds
from sgl.speculation import Speculation
from sgl.transcript import Addition, Transcript
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
        self.transcript = transcript
        self.recorder = recorder
        num_tokens = context.settings.num_api_spec_tokens
        self._speculation = Speculation(num_tokens) if num_tokens is not None else None
        self._gens = GenRunner(context=context, transcript=transcript, seeds=seeds, speculation=self._speculation)
        self._is_first_call = True
        self._captures: dict[Variable, int] = {}

    async def run(
        self,
        node: Node,
        variable: Variable | None,
        sampling: SamplingParams,
        *,
        thinking: Variable | None = None,
        following: Sequence[Node] = (),
    ) -> None:
        """Run one node; a gen or a select fills its variable.

        Args:
            node: The node.
            variable: What it fills.
            sampling: Settings for a gen that does not say its own.
            thinking: Gets what a gen thinks before its answer.
            following: The nodes that were appended together with it and stand behind it.
        """
        if self.recorder is None or isinstance(node, Text):
            await self._run(node, variable, sampling, thinking, following)
            return
        started_s, start = self.recorder.now_s(), len(self.transcript.text)
        try:
            await self._run(node, variable, sampling, thinking, following)
        except BaseException as error:
            with self._context.progress.look():
                record = self.recorder.node(node, variable, self.transcript.text[start:], started_s)
                record.error = f"{type(error).__name__}: {error}"
            raise
        with self._context.progress.look():
            record = self.recorder.node(node, variable, self.transcript.text[start:], started_s)
            if isinstance(node, Gen):
                record.prompt_ids = list(self.transcript.prompt.ids[: record.counts["prompt_tokens"]])
                record.output_ids = list(self._gens.last_output_ids)

    async def _run(
        self,
        node: Node,
        variable: Variable | None,
        sampling: SamplingParams,
        thinking: Variable | None,
        following: Sequence[Node],
    ) -> None:
        match node:
            case Text():
                self.append(node.value)
            case Gen():
                assert variable is not None, "every gen has a variable"
                await self._prepare("generate from")
                await self._gens.run(node, variable, sampling, thinking=thinking, following=following)
            case Select():
                assert variable is not None, "every select has a variable"
                await self._select(node, variable)
            case Media():
                with self._context.progress.change():
                    self.transcript.append_media(self._context.settings.image_token * len(node.urls), node.urls)
            case RoleBegin():
                affixes = await self._role_affixes(node.role)
                with self._context.progress.change():
                    self.transcript.begin_message(node.role, affixes)
            case RoleEnd():
                with self._context.progress.change():
                    self._use_text(self.transcript.open_suffix)
                    self.transcript.end_message()

    def append(self, text: str) -> None:
        """Put constant text behind."""
        with self._context.progress.change():
            self._use_text(text)
            self.transcript.append(text)
            if self.recorder is not None:
                self.recorder.text(text)

    def append_joined(self, addition: Addition) -> None:
        """Put what came to a joined branch behind."""
        with self._context.progress.change():
            self._use_text(addition.text)
            self.transcript.append_joined(addition)
            if self.recorder is not None:
                self.recorder.text(addition.text, kind="joined")

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

    def _use_text(self, text: str) -> None:
        if self._speculation is not None:
            self._speculation.use_text(text)

    async def _role_affixes(self, role: Role) -> RoleAffixes:
        template = self._context.settings.chat_template
        if template is not None:
            affixes = template.affixes(self.transcript.messages, role)
        else:
            affixes = await self._context.backend.role_affixes(self.transcript.messages, role)
        self._use_text(affixes.prefix)
        return affixes

    async def _select(self, node: Select, variable: Variable) -> None:
        await self._prepare("select behind")
        if self.transcript.spans and self.transcript.media:
            raise SglError("choices are scored behind text alone, and there is an image before this select")
        method = node.method or self._context.settings.choices_method
        selection = await self._context.backend.select(self.transcript.prompt, node.choices, method)
        choice = node.choices[selection.index]
        with self._context.progress.change():
            self.transcript.append(choice)
            self._context.usage.add_call(selection.meta)
            variable.finish(choice, selection.meta)

    async def _prepare(self, purpose: str) -> None:
        if self.transcript.prompt.is_empty:
            raise SglError(f"there is nothing to {purpose}: append text before it")
        if self._is_first_call:
            self._is_first_call = False
            if self._context.warmup is not None:
                await self._context.warmup.wait(self._context.backend, self.transcript.prompt)
