"""Messages and system prompt of /v1/messages, checked and turned into chat messages."""

from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.field_checks import checked_name, checked_text
from sgl_runtime.server.openai_tools import check_depth

Message = dict[str, Any]

_ROLES = ("user", "assistant", "system")
# What each role may say.
_BLOCKS = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "tool_use", "thinking"),
    "system": ("text",),
}
_OTHER_BLOCKS = ("image", "document", "search_result", "container_upload", "redacted_thinking")
_BETWEEN_BLOCKS = "\n\n"


def checked_conversation(messages: Any, system: Any) -> list[Message]:
    """The chat messages of a body.

    Args:
        messages: Its field of that name.
        system: Its field of that name; None where it is left out.

    Raises:
        InvalidRequestError: something in them is wrong, with its path.
    """
    if not isinstance(messages, list) or not messages:
        raise reject("messages", messages, "a non-empty list of messages")
    found: list[Message] = []
    if system is not None:
        found.append({"role": "system", "content": _plain_text("system", system)})
    for index, message in enumerate(messages):
        for read in _message(f"messages[{index}]", message):
            _append(found, read)
    return found


def _append(messages: list[Message], message: Message) -> None:
    """Add a message; two of one role that hold nothing but text become one."""
    last = messages[-1] if messages else None
    is_plain = message.keys() == {"role", "content"}
    if last is not None and is_plain and last.keys() == message.keys() and last["role"] == message["role"]:
        last["content"] += _BETWEEN_BLOCKS + message["content"]
    else:
        messages.append(message)


def _message(path: str, message: Any) -> list[Message]:
    if not isinstance(message, dict):
        raise reject(path, message, "an object with role and content")
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        raise reject(f"{path}.role", role, f"one of {', '.join(_ROLES)}")
    if isinstance(content, str):
        return [{"role": role, "content": checked_text(f"{path}.content", content)}]
    if not isinstance(content, list):
        raise reject(f"{path}.content", content, "a string, or a list of blocks")
    blocks = [_block(f"{path}.content[{index}]", block, role) for index, block in enumerate(content)]
    return [_assistant(blocks)] if role == "assistant" else _said(role, blocks)


def _assistant(blocks: list[tuple[str, Any]]) -> Message:
    """What the assistant thought, said and called, as one message."""
    message: Message = {"role": "assistant", "content": _joined(blocks, "text")}
    if thinking := _joined(blocks, "thinking"):
        message["reasoning_content"] = thinking
    if calls := [call for kind, call in blocks if kind == "tool_use"]:
        message["tool_calls"] = calls
    return message


def _said(role: str, blocks: list[tuple[str, Any]]) -> list[Message]:
    """Results of tools, each a message of its own, and the text between them."""
    messages: list[Message] = []
    for kind, block in blocks:
        _append(messages, block if kind == "tool_result" else {"role": role, "content": block})
    return messages or [{"role": role, "content": ""}]


def _joined(blocks: list[tuple[str, Any]], kind: str) -> str:
    return _BETWEEN_BLOCKS.join(text for found, text in blocks if found == kind)


def _block(path: str, block: Any, role: str) -> tuple[str, Any]:
    """The kind of a block, and what it comes to."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in _OTHER_BLOCKS:
        raise InvalidRequestError(f"{path} is of type {kind}; the served model takes text alone", param=path)
    if kind not in _BLOCKS[role]:
        allowed = f"one of {', '.join(_BLOCKS[role])} in a message of role {role}"
        raise reject(f"{path}.type" if isinstance(block, dict) else path, kind if kind else block, allowed)
    match kind:
        case "text" | "thinking":
            return kind, checked_text(f"{path}.{kind}", block.get(kind))
        case "tool_use":
            return kind, _tool_use(path, block)
    tool_id = checked_name(f"{path}.tool_use_id", block.get("tool_use_id"))
    content = block.get("content")
    text = "" if content is None else _plain_text(f"{path}.content", content)
    return kind, {"role": "tool", "tool_call_id": tool_id, "content": text}


def _tool_use(path: str, block: dict[str, Any]) -> dict[str, Any]:
    given = block.get("input")
    if not isinstance(given, dict):
        raise reject(f"{path}.input", given, "an object")
    check_depth(f"{path}.input", given)
    name = checked_name(f"{path}.name", block.get("name"))
    call_id = checked_name(f"{path}.id", block.get("id"))
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": given}}


def _plain_text(path: str, content: Any) -> str:
    """Text, or blocks of nothing else."""
    if isinstance(content, str):
        return checked_text(path, content)
    if not isinstance(content, list):
        raise reject(path, content, "a string, or a list of text blocks")
    return _BETWEEN_BLOCKS.join(_block(f"{path}[{index}]", block, "system")[1] for index, block in enumerate(content))
