"""VendorBackend: what the backends for other vendors' models share.

These take text or messages, never token ids, and promise nothing about a prefix cache.
"""

import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from sgl.backends.base import (
    PLAIN_AFFIXES,
    Backend,
    Capabilities,
    Generation,
    GenRequest,
    Message,
    Prompt,
    RoleAffixes,
    Selection,
)
from sgl.backends.vendor_wire import ReplyReader, chat_fields, completion_fields
from sgl.chat_template import ChatTemplate
from sgl.choices import ChoicesMethod
from sgl.errors import ArgumentError, BackendError, SglError, UnsupportedError
from sgl.usage import Usage

logger = logging.getLogger(__name__)


class VendorBackend(Backend):
    """Speaks the OpenAI wire form, over whatever carries it.

    Args:
        model_name: Sent as `model`.
        is_chat: Whether it takes messages; else it takes text.
        capabilities: What it can do.
        chat_template: The text around messages, for a model that takes text; None for plain lines.
        prefix_by: How it is asked for the rest of an assistant message; None where it cannot be.

    Attributes:
        token_usage: Sum over all calls so far; `token_usage.reset()` begins again.
    """

    def __init__(
        self,
        model_name: str,
        *,
        is_chat: bool,
        capabilities: Capabilities,
        chat_template: ChatTemplate | None = None,
        prefix_by: str | None = None,
    ) -> None:
        if is_chat and chat_template is not None:
            raise ArgumentError(
                f"chat_template is {chat_template.name!r}, and {capabilities.shown_as} takes messages: its server puts "
                "the text around them"
            )
        self.model_name = model_name
        self.is_chat_model = is_chat
        self.token_usage = Usage()
        self._capabilities = capabilities
        self._chat_template = chat_template
        self._prefix_by = prefix_by
        self._is_warned = False

    @property
    def chat_template(self) -> ChatTemplate | None:
        """See `Backend`."""
        return self._chat_template

    @property
    def capabilities(self) -> Capabilities:
        """See `Backend`."""
        return self._capabilities

    @abstractmethod
    async def send(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Send a request and give the reply."""

    @abstractmethod
    def send_streaming(self, fields: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Send a request and give the chunks of the reply; closing this ends the request."""

    async def generate(self, request: GenRequest) -> Generation:
        """See `Backend`."""
        fields = self._fields(request)
        reader = ReplyReader(request, fields)
        reader.take(await self.send(fields))
        return self._counted(reader.whole())

    async def generate_stream(self, request: GenRequest) -> AsyncGenerator[Generation, None]:
        """See `Backend`."""
        fields = self._fields(request)
        reader = ReplyReader(request, fields)
        async with aclosing(self.send_streaming(fields)) as chunks:
            async for chunk in chunks:
                if reader.take(chunk):
                    yield reader.beginning()
        yield self._counted(reader.whole())

    async def select(self, prompt: Prompt, choices: Sequence[str], method: ChoicesMethod) -> Selection:
        """Refused: see `capabilities`."""
        raise UnsupportedError(f"{self._capabilities.shown_as} does not support select")

    async def commit(self, prompt: Prompt) -> Prompt:
        """See `Backend`.  These endpoints cache, if at all, by themselves."""
        return prompt

    async def role_affixes(self, messages: Sequence[Message], role: str) -> RoleAffixes:
        """See `Backend`.  For a chat model they are in the state's text alone: it gets the messages."""
        if not self.is_chat_model and not self._is_warned:
            self._is_warned = True
            logger.warning(
                "%s takes text: roles are written as plain SYSTEM:, USER: and ASSISTANT: lines",
                self._capabilities.shown_as,
            )
        return PLAIN_AFFIXES[role]

    async def flush_cache(self) -> bool:
        """See `Backend`."""
        logger.warning("%s has no prefix cache that can be flushed", self._capabilities.shown_as)
        return False

    async def get_server_info(self) -> dict[str, Any]:
        """The model's name, and what was used of it so far."""
        return {
            "model": self.model_name,
            "is_chat_model": self.is_chat_model,
            "token_usage": dict(vars(self.token_usage)),
        }

    def _fields(self, request: GenRequest) -> dict[str, Any]:
        is_chat = self.is_chat_model
        fields = chat_fields(request, prefix_by=self._prefix_by) if is_chat else completion_fields(request)
        return {"model": self.model_name, **fields}

    def _counted(self, generation: Generation) -> Generation:
        self.token_usage.add_call(generation.meta)
        return generation


def load_vendor_package(name: str) -> ModuleType:
    """Import a package of the extra `vendors`.

    Raises:
        SglError: it is not installed; the message has the command that installs it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise SglError(f"package {name!r} is not installed; install it with: pip install 'sgl[vendors]'") from error


@contextmanager
def translated_errors(shown_as: str) -> Iterator[None]:
    """Turn errors of the `openai` package, which litellm's are too, into those of the language."""
    openai = load_vendor_package("openai")
    try:
        yield
    except openai.APIStatusError as error:
        body = error.body if isinstance(error.body, dict) else {}
        message = body.get("message") or error.message
        raise BackendError(
            f"{shown_as}: {message}", status=error.status_code, code=body.get("code"), param=body.get("param")
        ) from error
    except openai.APIConnectionError as error:
        raise BackendError(f"{shown_as} cannot be reached: {error.__cause__ or error}") from error
    except openai.OpenAIError as error:
        raise BackendError(f"{shown_as}: {error}") from error
