"""OpenAIApi: /v1 paths on top of the same requests that `/generate` runs."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from sgl_runtime.server.openai_reply import ChatShape, CompletionShape, ReplyShape, usage
from sgl_runtime.server.openai_request import OpenAIRequest, openai_names, parse_chat, parse_completion
from sgl_runtime.server.pending_reply import PendingReply, Update
from sgl_runtime.server.tokenizer_manager import TokenizerManager


@dataclass(frozen=True)
class OpenAICall:
    """A checked request and how its reply is shown.

    Attributes:
        request: The request.
        shape: The reply's shape.
        prompt_field: The body's field that holds the prompt, for errors.
    """

    request: OpenAIRequest
    shape: ReplyShape
    prompt_field: str


class OpenAIApi:
    """Runs calls of the /v1 paths.

    Args:
        manager: Runs the requests.
    """

    def __init__(self, manager: TokenizerManager) -> None:
        self._manager = manager
        self._created = int(time.time())

    async def completion(self, payload: Any) -> OpenAICall:
        """Check a body of /v1/completions.

        Raises:
            InvalidRequestError: the body is wrong.
        """
        request = parse_completion(payload)
        shape = CompletionShape(self._manager.tokenizer.vocabulary, request)
        return OpenAICall(request, shape, "prompt")

    async def chat(self, payload: Any) -> OpenAICall:
        """Check a body of /v1/chat/completions and render its messages.

        Raises:
            InvalidRequestError: the body is wrong, or the model has no chat template or refuses the messages.
        """
        request, messages = parse_chat(payload)
        text = self._manager.chat_template().render(messages, add_generation_prompt=True)
        # The template writes every special token itself, so none is put in front.
        input_ids = await self._manager.encode(text, add_bos=False)
        requests = [replace(single, input_ids=input_ids) for single in request.requests]
        request = replace(request, requests=requests)
        return OpenAICall(request, ChatShape(self._manager.tokenizer.vocabulary, request), "messages")

    async def reply(self, call: OpenAICall) -> dict[str, Any]:
        """The whole reply.

        Raises:
            SglRuntimeError: a request is wrong or failed.
        """
        requests = call.request.requests
        with openai_names(prompt=call.prompt_field):
            async with self._manager.submit(requests, stream=False) as submission:
                await submission.finish()
        pendings = submission.pendings
        choices = [call.shape.choice(pending.index, _update(call, pending, is_first=True)) for pending in pendings]
        head = self._head(call, call.shape.object_name)
        return {**head, "choices": choices, "usage": usage(pendings)}

    async def stream(self, call: OpenAICall) -> AsyncGenerator[dict[str, Any], None]:
        """The reply in chunks.

        Raises:
            SglRuntimeError: a request is wrong or failed.
        """
        head = self._head(call, call.shape.chunk_name)
        # With token counts wanted, every chunk but the last has the field, as null.
        no_usage: dict[str, Any] = {"usage": None} if call.request.include_usage else {}
        begun: set[int] = set()
        with openai_names(prompt=call.prompt_field):
            async with (
                self._manager.submit(call.request.requests, stream=True) as submission,
                aclosing(submission.updates()) as updates,
            ):
                async for pending in updates:
                    index = pending.index
                    is_first = index not in begun
                    begun.add(index)
                    delta = call.shape.delta(index, _update(call, pending, is_first=is_first), is_first=is_first)
                    yield {**head, "choices": [delta], **no_usage}
        if call.request.include_usage:
            yield {**head, "choices": [], "usage": usage(submission.pendings)}

    def models(self) -> dict[str, Any]:
        """The reply of /v1/models."""
        info = self._manager.model_info
        model = {
            "id": info.served_model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "sgl",
            "max_model_len": info.context_length,
        }
        return {"object": "list", "data": [model]}

    def _head(self, call: OpenAICall, object_name: str) -> dict[str, Any]:
        return {
            "id": f"{call.shape.id_prefix}{call.request.requests[0].rid}",
            "object": object_name,
            "created": int(time.time()),
            "model": self._manager.model_info.served_model_name,
        }


def _update(call: OpenAICall, pending: PendingReply, *, is_first: bool) -> Update:
    update = pending.take_update()
    return update.behind(pending.prompt_update()) if is_first and call.request.echo else update
