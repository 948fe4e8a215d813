"""SpeculativeCalls: asks a vendor's model for more than a gen wants, and serves the gens behind it from the reply."""

import asyncio
from collections.abc import Sequence
from typing import Any

from sgl.backends.base import GenRequest
from sgl.errors import SglError
from sgl.ir import Gen, Node
from sgl.run_context import RunContext
from sgl.sampling import SamplingParams
from sgl.speculation import MAX_ATTEMPTS, Continuation, Speculation, can_speculate, matches, settings_of_call
from sgl.transcript import Transcript


class SpeculativeCalls:
    """The calls of one state whose program speculates.

    A model that completes text goes on from all there is.  A chat model without prefixes writes a message from its
    beginning: the reply must then say what stands before the gen too, and what was appended together with it.

    Args:
        context: The run.
        transcript: What the state has come to.
        speculation: What is left of the model's words.
    """

    def __init__(self, context: RunContext, transcript: Transcript, speculation: Speculation) -> None:
        self._context = context
        self._transcript = transcript
        self._speculation = speculation

    async def take(
        self, node: Gen, settings: SamplingParams, following: Sequence[tuple[Node, SamplingParams]]
    ) -> tuple[str, dict[str, Any]] | None:
        """Output and meta info of a gen; None where it takes a call of its own.

        Args:
            node: The gen.
            settings: Its settings.
            following: The nodes that were appended together with it and stand behind it, with their settings.
        """
        if not can_speculate(node, settings):
            self._speculation.discard()
            return None
        meta: dict[str, Any] = {"prompt_tokens": 0, "cached_tokens": 0}
        taken = self._speculation.take(settings)
        is_speculated = taken is not None
        if taken is None:
            try:
                async with asyncio.timeout(node.timeout_s):
                    asked = await self._ask([(node, settings), *following], settings)
            except TimeoutError as error:
                raise SglError(f"no complete output within {node.timeout_s} seconds") from error
            if asked is None:
                return None
            meta = asked
            taken = self._speculation.take(settings)
            assert taken is not None, "what was put serves the gen that it was asked for"
        meta = {
            **meta,
            "finish_reason": taken.finish_reason,
            "completion_tokens": taken.num_tokens,
            "is_speculated": is_speculated,
        }
        meta.pop("output_token_logprobs", None)
        if settings.return_logprob and taken.tokens:
            meta["output_token_logprobs"] = [list(token) for token in taken.tokens]
        return taken.text, meta

    async def _ask(
        self, nodes: Sequence[tuple[Node, SamplingParams]], settings: SamplingParams
    ) -> dict[str, Any] | None:
        """Call until a reply says what the nodes say, and keep it; the meta info of the call."""
        capabilities = self._context.backend.capabilities
        dialogue = self._transcript.dialogue() if capabilities.takes_messages else None
        is_whole_message = dialogue is not None and not capabilities.continues_messages
        written = ""
        if dialogue is not None and is_whole_message:
            if dialogue.open_role != "assistant" or dialogue.has_open_media:
                return None
            written = dialogue.open_text
            dialogue = self._transcript.dialogue(without_open_text=True)
        request = GenRequest(
            prompt=self._transcript.prompt,
            sampling=settings_of_call(settings, self._speculation.num_tokens, wants_tokens=dialogue is None),
            dialogue=dialogue,
        )
        # Asked again, a model that samples nothing says the same.  What goes on from here has only its gen to serve.
        attempts = MAX_ATTEMPTS if is_whole_message and settings.temperature != 0.0 else 1
        for _ in range(attempts):
            generation = await self._context.backend.generate(request)
            with self._context.progress.look():
                self._context.usage.add_call(generation.meta)
            continuation = Continuation.of(generation, settings)
            if not continuation.text.startswith(written):
                continue
            continuation = continuation.behind(len(written))
            if matches(continuation, nodes if is_whole_message else nodes[:1]):
                self._speculation.put(continuation)
                return generation.meta
        return None
