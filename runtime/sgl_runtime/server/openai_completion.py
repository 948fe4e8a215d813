"""OpenAICompletion: /v1/completions on top of the same requests that `/generate` runs."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from sgl_runtime.server.chat.chat_reply import ChatUsage
from sgl_runtime.server.openai_completion_body import OpenAICompletionBody, parse_completion
from sgl_runtime.server.openai_names import openai_names
from sgl_runtime.server.openai_reply import CompletionShape, reply_head, usage_object
from sgl_runtime.server.pending_reply import PendingReply, Update
from sgl_runtime.server.tokenizer_manager import TokenizerManager


@dataclass(frozen=True)
class PreparedCompletion:
    """A checked request.

    Attributes:
        body: Its body.
        created: When it came.
    """

    body: OpenAICompletionBody
    created: int

    @property
    def stream(self) -> bool:
        """Whether the reply is a stream."""
        return self.body.stream


class OpenAICompletion:
    """Runs completion requests.

    Args:
        manager: Runs them.
    """

    def __init__(self, manager: TokenizerManager) -> None:
        self._manager = manager

    async def prepare(self, payload: Any) -> PreparedCompletion:
        """Check a body.

        Raises:
            InvalidRequestError: the body is wrong.
        """
        return PreparedCompletion(parse_completion(payload, most=self._manager.max_live), int(time.time()))

    async def reply(self, prepared: PreparedCompletion) -> dict[str, Any]:
        """The whole reply.

        Raises:
            SglRuntimeError: a request is wrong or failed.
        """
        body = prepared.body
        with openai_names(prompt="prompt", constraint=body.constraint_field):
            async with self._manager.submit(body.requests, stream=False) as submission:
                await submission.finish()
        updates = [pending.take_update() for pending in submission.pendings]
        num_generated = sum(len(update.ids) for update in updates)
        shape = self._shape(body)
        if body.echo:
            for index, pending in enumerate(submission.pendings):
                shape.echo(index, pending.prompt_update())
        choices = [shape.choice(index, update) for index, update in enumerate(_likeliest(updates, body))]
        usage = usage_object(_usage(submission.pendings, num_generated))
        return {**self._head(prepared), "choices": choices, "usage": usage}

    async def stream(self, prepared: PreparedCompletion) -> AsyncGenerator[dict[str, Any], None]:
        """The reply in chunks.

        Raises:
            SglRuntimeError: a request is wrong or failed.
        """
        body = prepared.body
        shape, head = self._shape(body), self._head(prepared)
        # With token counts wanted at the end, every chunk but the last has the field, as null.
        no_usage: dict[str, Any] = {"usage": None} if body.usage.at_end else {}
        begun: set[int] = set()
        num_generated = 0
        with openai_names(prompt="prompt", constraint=body.constraint_field):
            async with (
                self._manager.submit(body.requests, stream=True) as submission,
                aclosing(submission.updates()) as updates,
            ):
                async for pending in updates:
                    index = pending.index
                    update = pending.take_update()
                    num_generated += len(update.ids)
                    if body.echo and index not in begun:
                        shape.echo(index, pending.prompt_update())
                    begun.add(index)
                    if body.usage.in_chunks:
                        no_usage = {"usage": usage_object(_usage(submission.pendings, num_generated))}
                    yield {**head, "choices": [shape.choice(index, update)], **no_usage}
        if body.usage.at_end:
            usage = usage_object(_usage(submission.pendings, num_generated))
            yield {**head, "choices": [], "usage": usage}

    def _shape(self, body: OpenAICompletionBody) -> CompletionShape:
        return CompletionShape(
            self._manager.tokenizer.vocabulary,
            logprobs=body.logprobs,
            num_top=body.num_top_logprobs,
            num_choices=len(body.requests),
            skips_special=body.requests[0].sampling.skip_special_tokens,
        )

    def _head(self, prepared: PreparedCompletion) -> dict[str, Any]:
        return reply_head(
            reply_id=f"cmpl-{prepared.body.requests[0].rid}",
            object_name="text_completion",
            created=prepared.created,
            model=self._manager.model_info.served_model_name,
        )


def _likeliest(updates: Sequence[Update], body: OpenAICompletionBody) -> list[Update]:
    """Of the outputs of each prompt those that are shown, the likeliest by token first where there are more."""
    if body.num_drawn == body.num_shown:
        return list(updates)
    shown: list[Update] = []
    for begin in range(0, len(updates), body.num_drawn):
        ranked = sorted(updates[begin : begin + body.num_drawn], key=_mean_logprob, reverse=True)
        shown += ranked[: body.num_shown]
    return shown


def _mean_logprob(update: Update) -> float:
    known = [logprob for logprob in update.logprobs if logprob is not None]
    return sum(known) / max(len(known), 1)


def _usage(pendings: Sequence[PendingReply], num_generated: int) -> ChatUsage:
    prompts = [pending for pending in pendings if pending.request.sample == 0]
    return ChatUsage(
        prompt_tokens=sum(len(pending.input_ids) for pending in prompts),
        completion_tokens=num_generated,
        cached_tokens=sum(0 if pending.last is None else pending.last.cached_tokens for pending in prompts),
        reasoning_tokens=0,
    )
