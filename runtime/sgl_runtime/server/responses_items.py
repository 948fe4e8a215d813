"""Items of /v1/responses: those of a body checked, and all of a conversation turned into chat messages."""

from collections.abc import Sequence
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.field_checks import checked_text
from sgl_runtime.server.generate_request import new_rid

Item = dict[str, Any]

_ROLES = ("user", "assistant", "system", "developer")
# Parts that hold text, each with the field that has it.
_TEXT_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_OTHER_PARTS = ("input_image", "input_file", "input_audio", "image_url", "computer_screenshot")
_ID_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def checked_items(value: Any) -> list[Item]:
    """The items of `input`, each with an id, its text in lists of parts.

    Raises:
        InvalidRequestError: something in it is wrong, with its path.
    """
    if isinstance(value, str):
        return [_item("input", {"role": "user", "content": value})]
    if not isinstance(value, list) or not value:
        raise reject("input", value, "a string, or a non-empty list of items")
    return [_item(f"input[{index}]", item) for index, item in enumerate(value)]


def chat_messages(items: Sequence[Item]) -> list[dict[str, Any]]:
    """The chat messages of a conversation.

    What the assistant thought, said and called stands in items of its own, and together makes one message.

    Args:
        items: Checked items, or those of a reply.
    """
    messages: list[dict[str, Any]] = []
    turn: dict[str, Any] | None = None
    for item in items:
        kind = item["type"]
        if kind == "function_call_output":
            turn = None
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
            continue
        if kind == "message" and item["role"] != "assistant":
            turn = None
            messages.append({"role": item["role"], "content": _text_of(item["content"])})
            continue
        if turn is None or _goes_behind(kind, turn):
            turn = {"role": "assistant", "content": ""}
            messages.append(turn)
        _add_to_turn(turn, item)
    return messages


def _goes_behind(kind: str, turn: dict[str, Any]) -> bool:
    """Whether an item begins another message than the one that the assistant has begun."""
    if kind == "function_call":
        return False
    return bool(turn["content"] or "tool_calls" in turn)


def _add_to_turn(turn: dict[str, Any], item: Item) -> None:
    match item["type"]:
        case "reasoning":
            parts = item.get("content") or item["summary"]
            text = "\n".join(part["text"] for part in parts)
            turn["reasoning_content"] = "\n".join(filter(None, (turn.get("reasoning_content"), text)))
        case "message":
            turn["content"] = _text_of(item["content"])
        case "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            turn.setdefault("tool_calls", []).append(call)


def _text_of(parts: Sequence[dict[str, Any]]) -> str:
    return "".join(part[_TEXT_PARTS[part["type"]]] for part in parts)


def _item(path: str, item: Any) -> Item:
    if not isinstance(item, dict):
        raise reject(path, item, "an object with a type, or with role and content")
    kind = item.get("type")
    if kind is None and "role" in item:
        kind = "message"
    if not isinstance(kind, str) or kind not in _ID_PREFIXES:
        allowed = f"{', '.join(_ID_PREFIXES)}; the server takes text, and runs no tools of its own"
        raise reject(f"{path}.type", kind, allowed)
    given = item.get("id")
    item_id = f"{_ID_PREFIXES[kind]}_{new_rid()}" if given is None else checked_text(f"{path}.id", given)
    head = {"id": item_id, "type": kind, "status": "completed"}
    match kind:
        case "message":
            return {**head, **_message(path, item)}
        case "function_call":
            names = ("call_id", "name", "arguments")
            return {**head, **{name: checked_text(f"{path}.{name}", item.get(name)) for name in names}}
        case "function_call_output":
            call_id = checked_text(f"{path}.call_id", item.get("call_id"))
            output = _text_of(_parts(f"{path}.output", item.get("output"), "input_text"))
            return {**head, "call_id": call_id, "output": output}
    return {**head, **_reasoning(path, item)}


def _message(path: str, item: dict[str, Any]) -> dict[str, Any]:
    role = item.get("role")
    if role not in _ROLES:
        raise reject(f"{path}.role", role, f"one of {', '.join(_ROLES)}")
    kind = "output_text" if role == "assistant" else "input_text"
    return {"role": role, "content": _parts(f"{path}.content", item.get("content"), kind)}


def _reasoning(path: str, item: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        given = item.get(name)
        if given is None:
            given = []
        if not isinstance(given, list):
            raise reject(f"{path}.{name}", given, f"a list of {kind} parts")
        read[name] = [
            {"type": kind, "text": checked_text(f"{path}.{name}[{index}].text", _field(part, "text"))}
            for index, part in enumerate(given)
        ]
    return read


def _parts(path: str, content: Any, kind: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [_part(kind, checked_text(path, content))]
    if not isinstance(content, list):
        raise reject(path, content, "a string, or a list of parts")
    parts = []
    for index, part in enumerate(content):
        part_path, part_kind = f"{path}[{index}]", _field(part, "type")
        if part_kind in _OTHER_PARTS:
            raise InvalidRequestError(
                f"{part_path} is of type {part_kind}; the served model takes text alone", param=part_path
            )
        if not isinstance(part_kind, str) or part_kind not in _TEXT_PARTS:
            raise reject(part_path, part, f'an object {{"type": "{kind}", "text": "..."}}')
        field = _TEXT_PARTS[part_kind]
        text = checked_text(f"{part_path}.{field}", part.get(field))
        parts.append({"type": "refusal", "refusal": text} if part_kind == "refusal" else _part(kind, text))
    return parts


def _part(kind: str, text: str) -> dict[str, Any]:
    return {"type": kind, "text": text, **({"annotations": []} if kind == "output_text" else {})}


def _field(part: Any, name: str) -> Any:
    return part.get(name) if isinstance(part, dict) else None
