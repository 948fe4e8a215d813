"""Chat messages of a body, checked."""

from typing import Any

from sgl_runtime.sampling_params import reject
from sgl_runtime.server.field_checks import checked_text


def checked_messages(messages: Any, *, allow_empty: bool = False) -> list[dict[str, Any]]:
    """Chat messages whose content is plain text.

    Returns:
        The messages with text parts joined; every other field is kept for the template.

    Raises:
        InvalidRequestError: something in them is wrong, with its path.
    """
    if not isinstance(messages, list) or not (messages or allow_empty):
        raise reject("messages", messages, "a list of messages" if allow_empty else "a non-empty list of messages")
    return [_checked_message(f"messages[{index}]", message) for index, message in enumerate(messages)]


def _checked_message(path: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise reject(path, message, "an object with role and content")
    checked_text(f"{path}.role", message.get("role"))
    content = message.get("content")
    if isinstance(content, list):
        parts = [_text_part(f"{path}.content[{index}]", part) for index, part in enumerate(content)]
        return {**message, "content": "".join(parts)}
    return {**message, "content": checked_text(f"{path}.content", content)}


def _text_part(path: str, part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        raise reject(path, part, 'an object {"type": "text", "text": "..."}')
    return checked_text(f"{path}.text", part.get("text"))
