"""Chat messages of a body, checked."""

import json
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.field_checks import checked_text

# Parts that hold text, each with the field that has it.
_TEXT_PARTS = {"text": "text", "refusal": "refusal"}
_OTHER_PARTS = ("image_url", "input_image", "image", "input_audio", "audio_url", "file", "video_url")


def checked_messages(messages: Any, *, allow_empty: bool = False) -> list[dict[str, Any]]:
    """Chat messages whose content is plain text.

    Returns:
        The messages with text parts joined, and "" as the content of those of the assistant that have none; every
        other field that is not null is kept for the template.

    Raises:
        InvalidRequestError: something in them is wrong, with its path.
    """
    if not isinstance(messages, list) or not (messages or allow_empty):
        raise reject("messages", messages, "a list of messages" if allow_empty else "a non-empty list of messages")
    return [_checked_message(f"messages[{index}]", message) for index, message in enumerate(messages)]


def _checked_message(path: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise reject(path, message, "an object with role and content")
    role = checked_text(f"{path}.role", message.get("role"))
    checked = {name: value for name, value in message.items() if value is not None and name != "refusal"}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if name in checked:
            checked_text(f"{path}.{name}", checked[name])
    calls = checked.pop("tool_calls", [])
    if not isinstance(calls, list):
        raise reject(f"{path}.tool_calls", calls, "a list of calls")
    content = message.get("content")
    if role == "assistant":
        if "function_call" in checked:
            raise InvalidRequestError(
                f"{path}.function_call is not supported; give tool_calls instead", param=f"{path}.function_call"
            )
        # A refusal is what the assistant said; it may say nothing where it calls tools, or has only thought.
        nothing = "" if calls or "reasoning_content" in checked else None
        content = next((each for each in (content, message.get("refusal")) if each is not None), nothing)
    checked["content"] = _content(f"{path}.content", content)
    if calls:
        checked["tool_calls"] = [_call(f"{path}.tool_calls[{index}]", call) for index, call in enumerate(calls)]
    return checked


def _call(path: str, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise reject(path, call, 'an object {"id": "...", "type": "function", "function": {"name", "arguments"}}')
    name = checked_text(f"{path}.function.name", function.get("name"))
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, dict):
        _check_json(f"{path}.function.arguments", arguments)
    else:
        checked_text(f"{path}.function.arguments", arguments)
    call_id = checked_text(f"{path}.id", call.get("id", ""))
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments or "{}"}}


def _check_json(path: str, value: dict[str, Any]) -> None:
    try:
        json.dumps(value)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path} cannot be written as JSON: it is nested too deeply", param=path) from error


def _content(path: str, content: Any) -> str:
    if not isinstance(content, list):
        return checked_text(path, content)
    return "".join(_text_part(f"{path}[{index}]", part) for index, part in enumerate(content))


def _text_part(path: str, part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _OTHER_PARTS:
        raise InvalidRequestError(f"{path} is of type {kind}; the served model takes text alone", param=path)
    if not isinstance(kind, str) or kind not in _TEXT_PARTS:
        raise reject(path, part, 'an object {"type": "text", "text": "..."}')
    field = _TEXT_PARTS[kind]
    return checked_text(f"{path}.{field}", part.get(field))
