"""OpenAIApi: the /v1 paths that OpenAI's clients use."""

import time
from typing import Any

from sgl_runtime.server.chat.chat_service import ChatService
from sgl_runtime.server.openai_chat import OpenAIChat
from sgl_runtime.server.openai_completion import OpenAICompletion
from sgl_runtime.server.tokenizer_manager import TokenizerManager


class OpenAIApi:
    """Holds what answers each path.

    Args:
        manager: Runs the requests.

    Attributes:
        service: Runs chats, for whatever API they come by.
        chat: /v1/chat/completions.
        completions: /v1/completions.
    """

    def __init__(self, manager: TokenizerManager) -> None:
        self.service = ChatService(manager)
        self.chat = OpenAIChat(manager, self.service)
        self.completions = OpenAICompletion(manager)
        self._manager = manager
        self._created = int(time.time())

    def models(self) -> dict[str, Any]:
        """The reply of /v1/models."""
        return {"object": "list", "data": [self._model()]}

    def model(self, name: str) -> dict[str, Any] | None:
        """The reply of /v1/models/NAME; None where no such model is served."""
        model = self._model()
        return model if name == model["id"] else None

    def _model(self) -> dict[str, Any]:
        info = self._manager.model_info
        return {
            "id": info.served_model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "sgl",
            "max_model_len": info.context_length,
        }
