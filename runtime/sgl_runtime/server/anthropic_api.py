"""AnthropicApi: /v1/messages, a translation to the chat core and back."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import RequestAbortedError
from sgl_runtime.server.anthropic_body import AnthropicBody, parse_anthropic
from sgl_runtime.server.anthropic_writer import AnthropicWriter
from sgl_runtime.server.chat.chat_reply import ChatStep
from sgl_runtime.server.chat.chat_service import ChatService, PreparedChat
from sgl_runtime.server.openai_names import openai_names
from sgl_runtime.server.tokenizer_manager import TokenizerManager


@dataclass(frozen=True)
class PreparedMessage:
    """A checked request.

    Attributes:
        body: Its body.
        chat: What the core runs.
    """

    body: AnthropicBody
    chat: PreparedChat

    @property
    def stream(self) -> bool:
        """Whether the reply is a stream."""
        return self.body.call.stream


class AnthropicApi:
    """Runs messages.

    Args:
        manager: Knows the served model.
        service: Runs chats.
    """

    def __init__(self, manager: TokenizerManager, service: ChatService) -> None:
        self._manager = manager
        self._service = service

    async def prepare(self, payload: Any) -> PreparedMessage:
        """Check a body and render its messages.

        Raises:
            InvalidRequestError: the body is wrong, or the model has no chat template or refuses the messages.
        """
        body = parse_anthropic(payload)
        with _names(body):
            return PreparedMessage(body, await self._service.prepare(body.call))

    async def count_tokens(self, payload: Any) -> dict[str, Any]:
        """The reply of /v1/messages/count_tokens: how long the prompt of a body is.

        Raises:
            InvalidRequestError: as in `prepare`.
        """
        body = parse_anthropic(payload, counts_only=True)
        with _names(body):
            chat = await self._service.prepare(body.call)
        return {"input_tokens": chat.num_prompt_tokens}

    async def reply(self, prepared: PreparedMessage) -> dict[str, Any]:
        """The whole message.

        Raises:
            SglRuntimeError: the request is wrong or failed.
        """
        writer = self._writer(prepared)
        async with aclosing(self._steps(prepared, piecewise=False)) as steps:
            async for step in steps:
                writer.take(step)
        return writer.message()

    async def stream(self, prepared: PreparedMessage) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a message.

        Raises:
            SglRuntimeError: the request is wrong or failed.
        """
        writer, has_begun = self._writer(prepared), False
        async with aclosing(self._steps(prepared, piecewise=True)) as steps:
            async for step in steps:
                # Not before: until the first step the request may be refused, with a status.
                for event in [*([] if has_begun else writer.begin(step.usage)), *writer.take(step)]:
                    yield event
                has_begun = True

    async def _steps(self, prepared: PreparedMessage, *, piecewise: bool) -> AsyncGenerator[ChatStep, None]:
        with _names(prepared.body):
            async with aclosing(self._service.stream(prepared.chat, piecewise=piecewise)) as steps:
                async for step in steps:
                    if step.finish is not None and step.finish.reason == "abort":
                        raise RequestAbortedError("the request was aborted")
                    yield step

    def _writer(self, prepared: PreparedMessage) -> AnthropicWriter:
        body = prepared.body
        return AnthropicWriter(
            f"msg_{prepared.chat.rid}",
            model=self._manager.model_info.served_model_name,
            stop_sequences=body.stop_sequences,
            max_tokens=body.max_tokens,
            shows_thinking=body.shows_thinking,
        )


@contextmanager
def _names(body: AnthropicBody) -> Iterator[None]:
    others = (("sampling_params.stop_token_ids", "stop_token_ids"), ("sampling_params.stop_regex", "stop_regex"),
              ("sampling_params.stop", "stop_sequences"))  # fmt: skip
    with openai_names(prompt="messages", constraint=body.constraint_field, others=others):
        yield
