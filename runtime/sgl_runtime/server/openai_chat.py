"""OpenAIChat: /v1/chat/completions, a translation to the chat core and back."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from sgl_runtime.server.chat.chat_reply import ChatStep, ChatUsage
from sgl_runtime.server.chat.chat_service import ChatService, PreparedChat
from sgl_runtime.server.openai_chat_body import OpenAIChatBody, parse_chat
from sgl_runtime.server.openai_names import openai_names
from sgl_runtime.server.openai_reply import ChatShape, reply_head, usage_object
from sgl_runtime.server.tokenizer_manager import TokenizerManager
from sgl_runtime.server.tool_parsers.events import ReplyEvent


@dataclass(frozen=True)
class PreparedOpenAIChat:
    """A checked request.

    Attributes:
        body: Its body.
        chat: What the core runs.
        created: When it came.
    """

    body: OpenAIChatBody
    chat: PreparedChat
    created: int

    @property
    def stream(self) -> bool:
        """Whether the reply is a stream."""
        return self.body.call.stream


class OpenAIChat:
    """Runs chat requests.

    Args:
        manager: Knows the served model.
        service: Runs them.
    """

    def __init__(self, manager: TokenizerManager, service: ChatService) -> None:
        self._manager = manager
        self._service = service

    async def prepare(self, payload: Any) -> PreparedOpenAIChat:
        """Check a body and render its messages.

        Raises:
            InvalidRequestError: the body is wrong, or the model has no chat template or refuses the messages.
        """
        body = parse_chat(payload)
        with openai_names(prompt="messages", constraint=body.constraint_field, limit=body.limit_field):
            chat = await self._service.prepare(body.call)
        return PreparedOpenAIChat(body, chat, int(time.time()))

    async def reply(self, prepared: PreparedOpenAIChat) -> dict[str, Any]:
        """The whole reply.

        Raises:
            SglRuntimeError: a request is wrong or failed.
        """
        body = prepared.body
        with openai_names(prompt="messages", constraint=body.constraint_field, limit=body.limit_field):
            reply = await self._service.reply(prepared.chat)
        shape = self._shape(body)
        return {
            **self._head(prepared, "chat.completion"),
            "choices": [shape.choice(choice) for choice in reply.choices],
            "usage": usage_object(reply.usage),
        }

    async def stream(self, prepared: PreparedOpenAIChat) -> AsyncGenerator[dict[str, Any], None]:
        """The reply in chunks.

        Raises:
            SglRuntimeError: a request is wrong or failed.
        """
        body = prepared.body
        shape = self._shape(body)
        head = self._head(prepared, "chat.completion.chunk")
        begun: set[int] = set()
        usage: ChatUsage | None = None
        with openai_names(prompt="messages", constraint=body.constraint_field, limit=body.limit_field):
            async with aclosing(self._service.stream(prepared.chat)) as steps:
                async for step in steps:
                    usage = step.usage
                    for choice in _chunks(shape, step, is_first=step.index not in begun, with_tokens=body.logprobs):
                        begun.add(step.index)
                        yield {**head, "choices": [choice], **_chunk_usage(body, usage)}
        if body.usage.at_end and usage is not None:
            yield {**head, "choices": [], "usage": usage_object(usage)}

    def _shape(self, body: OpenAIChatBody) -> ChatShape:
        vocabulary = self._manager.tokenizer.vocabulary
        return ChatShape(vocabulary, logprobs=body.logprobs, num_top=body.num_top_logprobs)

    def _head(self, prepared: PreparedOpenAIChat, object_name: str) -> dict[str, Any]:
        return reply_head(
            reply_id=f"chatcmpl-{prepared.chat.rid}",
            object_name=object_name,
            created=prepared.created,
            model=self._manager.model_info.served_model_name,
        )


def _chunks(shape: ChatShape, step: ChatStep, *, is_first: bool, with_tokens: bool) -> list[dict[str, Any]]:
    """A chunk for each event; the tokens go with the first one, the end with the last one."""
    has_news = step.finish is not None or (with_tokens and step.tokens.ids)
    events: list[ReplyEvent | None] = [*step.events] or ([None] if has_news else [])
    return [
        shape.delta(
            step.index,
            event,
            is_first=is_first and place == 0,
            tokens=[step.tokens] if place == 0 else [],
            finish=step.finish if place == len(events) - 1 else None,
        )
        for place, event in enumerate(events)
    ]


def _chunk_usage(body: OpenAIChatBody, usage: ChatUsage) -> dict[str, Any]:
    # With token counts wanted at the end, every chunk but the last has the field, as null.
    if body.usage.in_chunks:
        return {"usage": usage_object(usage)}
    return {"usage": None} if body.usage.at_end else {}
