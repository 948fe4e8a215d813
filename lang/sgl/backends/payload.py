"""Pieces of native requests and replies that several modules put together or take apart."""

import uuid
from typing import Any

from sgl.backends.base import Prompt
from sgl.errors import BackendError


def new_rid() -> str:
    """A request id."""
    return uuid.uuid4().hex


def prompt_fields(prompt: Prompt) -> dict[str, Any]:
    """The fields of a request that say the prompt."""
    fields: dict[str, Any] = {}
    if prompt.ids:
        fields["input_ids"] = list(prompt.ids)
    if prompt.pending:
        fields["text"] = prompt.pending
        fields["return_text_ids"] = True
    return fields


def error_from_reply(reply: Any, *, status: int | None) -> BackendError:
    """The error that a reply of the form `{"error": {...}}` describes; any other reply is shown as it is."""
    error = reply.get("error") if isinstance(reply, dict) else None
    if not isinstance(error, dict) or "message" not in error:
        return BackendError(f"the server answered with status {status}: {str(reply)[:500]}", status=status)
    return BackendError(error["message"], status=status, code=error.get("code"), param=error.get("param"))
