"""Paths that generate, and what a prompt is made of."""

from collections.abc import Mapping
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.server.field_checks import checked_fields, checked_text
from sgl_runtime.server.generate_request import parse_generate
from sgl_runtime.server.message_checks import checked_messages
from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.tokenizer_manager import TokenizerManager


class GenerationPaths:
    """`/generate` as a whole reply, and what a chat template puts around a message.

    Args:
        manager: Runs the requests.
    """

    def __init__(self, manager: TokenizerManager) -> None:
        self._manager = manager

    def paths(self) -> Mapping[str, NativePath]:
        """Each path, and how it is answered."""
        return {
            "/generate": NativePath(answer=self._generate),
            "/role_affixes": NativePath(answer=self._role_affixes),
        }

    async def _generate(self, payload: Any) -> Any:
        """Generate from text or token ids."""
        body = parse_generate(payload, most=self._manager.max_live)
        if body.stream:
            raise InvalidRequestError("stream is true; a call answers once, ask for the stream instead", param="stream")
        async with self._manager.submit(body.requests, stream=False) as submission:
            await submission.finish()
        replies = [pending.reply() for pending in submission.pendings]
        return replies if body.is_batch else replies[0]

    async def _role_affixes(self, payload: Any) -> dict[str, Any]:
        """The text that the chat template puts around a message."""
        fields = checked_fields(payload, ("messages", "role"))
        messages = checked_messages(fields.get("messages", []), allow_empty=True)
        role = checked_text("role", fields.get("role"))
        prefix, suffix = self._manager.chat_template().role_affixes(messages, role)
        return {"prefix": prefix, "suffix": suffix}
