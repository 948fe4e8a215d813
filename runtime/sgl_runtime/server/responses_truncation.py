"""Fitting a conversation into the context by leaving out its oldest turns (`truncation: auto`)."""

from dataclasses import replace
from typing import Any

from sgl_runtime.server.chat.chat_call import ChatCall
from sgl_runtime.server.chat.chat_service import ChatService, PreparedChat

_KEPT_ROLES = ("system", "developer")


async def prepare_fitting(service: ChatService, call: ChatCall, *, context_length: int) -> PreparedChat:
    """Prepare a call with as many of its latest turns as fit; if not even the last one fits, with that.

    Args:
        service: Prepares it.
        call: The call.
        context_length: Tokens of prompt and output together.

    Raises:
        InvalidRequestError: something else in it is wrong.
    """
    prepared = await service.prepare(call)
    if _fits(prepared, context_length):
        return prepared
    messages = call.messages
    # A turn begins with what a user says: nothing begins with an answer, or with the result of a call.
    begins = [index for index, message in enumerate(messages) if message["role"] == "user"][1:]
    low, high = 0, len(begins)
    while low < high:
        middle = (low + high) // 2
        shorter = await service.prepare(replace(call, messages=_from(messages, begins[middle])))
        if _fits(shorter, context_length) or middle == len(begins) - 1:
            prepared = shorter
        if _fits(shorter, context_length):
            high = middle
        else:
            low = middle + 1
    return prepared


def _fits(prepared: PreparedChat, context_length: int) -> bool:
    limit = prepared.requests[0].sampling.max_new_tokens
    return prepared.num_prompt_tokens + (1 if limit is None else limit) <= context_length


def _from(messages: list[dict[str, Any]], begin: int) -> list[dict[str, Any]]:
    return [message for index, message in enumerate(messages) if index >= begin or message["role"] in _KEPT_ROLES]
