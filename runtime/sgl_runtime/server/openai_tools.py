"""Tools and the choice among them, as OpenAI's chat path has them."""

import re
from collections.abc import Callable
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.chat.chat_call import FunctionTool, ToolChoice
from sgl_runtime.server.field_checks import checked_boolean, checked_fields, checked_text

MAX_TOOLS = 512
MAX_DEPTH = 100
"""Most objects and lists that a definition, or the arguments of a call, may nest."""

_NAME = re.compile(r"[\w.:/-]{1,128}")


def checked_tools(value: Any) -> tuple[FunctionTool, ...]:
    """The functions of `tools`.

    Raises:
        InvalidRequestError: something in it is wrong, with its path.
    """
    return distinct_tools(value, _tool, name_field="function.name")


def distinct_tools(
    value: Any, read: Callable[[str, Any], FunctionTool], *, name_field: str
) -> tuple[FunctionTool, ...]:
    """The functions of `tools`, in the form of any API.

    Args:
        value: The field.
        read: Reads one of them; it is given its path.
        name_field: Where in it its name stands.

    Raises:
        InvalidRequestError: something in it is wrong, with its path.
    """
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise reject("tools", value, f"a list of at most {MAX_TOOLS} tools")
    tools = tuple(read(f"tools[{index}]", tool) for index, tool in enumerate(value))
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in names:
            path = f"tools[{index}].{name_field}"
            raise InvalidRequestError(f"{path} is {tool.name!r}, as that of another function", param=path)
        names.add(tool.name)
    return tools


def checked_function(path: str, value: Any) -> FunctionTool:
    """A function: its name, description, parameters and whether it is strict.

    Raises:
        InvalidRequestError: something in it is wrong, with its path.
    """
    if not isinstance(value, dict):
        raise reject(path, value, "an object with a name")
    name = value.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise reject(f"{path}.name", name, "1 to 128 letters, digits, or characters of _-.:/")
    if value.get("description") is not None:
        checked_text(f"{path}.description", value["description"])
    parameters = value.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise reject(f"{path}.parameters", parameters, "a JSON Schema as an object")
    check_depth(path, value)
    strict = value.get("strict")
    return FunctionTool(
        name=name,
        definition={key: content for key, content in value.items() if content is not None and key != "strict"},
        parameters=parameters or {},
        strict=strict is not None and checked_boolean(f"{path}.strict", strict),
    )


def checked_tool_choice(value: Any, tools: tuple[FunctionTool, ...], *, parallel: bool) -> ToolChoice:
    """What `tool_choice` asks for.

    Args:
        value: The field; None where it is left out.
        tools: The functions that there are.
        parallel: Whether there may be several calls.

    Raises:
        InvalidRequestError: it is malformed, or names a function that there is not.
    """
    is_one_call = not parallel
    if value is None:
        return ToolChoice(is_one_call=is_one_call)
    allowed = '"none", "auto", "required", a function {"type": "function", "function": {"name": ...}}, or allowed_tools'
    if value in ("none", "auto"):
        return ToolChoice(mode=value, is_one_call=is_one_call)
    if not tools:
        raise InvalidRequestError("tool_choice is given without tools", param="tool_choice")
    if value == "required":
        return ToolChoice(mode="required", is_one_call=is_one_call)
    if not isinstance(value, dict):
        raise reject("tool_choice", value, allowed)
    if value.get("type") == "function":
        name = named_function("tool_choice.function", value.get("function"), tools)
        return ToolChoice(mode="required", names=(name,), is_one_call=True)
    if value.get("type") != "allowed_tools":
        raise reject("tool_choice.type", value.get("type"), '"function" or "allowed_tools"')
    path = "tool_choice.allowed_tools"
    fields = checked_fields(value.get("allowed_tools"), ("mode", "tools"), path=path)
    mode, listed = fields.get("mode", "auto"), fields.get("tools")
    if mode not in ("auto", "required"):
        raise reject(f"{path}.mode", mode, '"auto" or "required"')
    if not isinstance(listed, list) or not listed:
        raise reject(f"{path}.tools", listed, "a non-empty list of functions")
    names = tuple(
        named_function(
            f"{path}.tools[{index}].function", tool.get("function") if isinstance(tool, dict) else None, tools
        )
        for index, tool in enumerate(listed)
    )
    return ToolChoice(mode=mode, names=names, is_one_call=is_one_call)


def named_function(path: str, value: Any, tools: tuple[FunctionTool, ...]) -> str:
    """The name of a function that an object names.

    Args:
        path: Place of the object.
        value: The object.
        tools: The functions that there are.

    Raises:
        InvalidRequestError: it names none of them.
    """
    name = value.get("name") if isinstance(value, dict) else None
    known = [tool.name for tool in tools]
    if name not in known:
        raise reject(f"{path}.name", name, f"one of {', '.join(known[:20])}")
    return str(name)


def check_depth(path: str, value: Any) -> None:
    """See that a value does not nest more than `MAX_DEPTH` objects and lists.

    Raises:
        InvalidRequestError: it does.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        items = [item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer)]
        level = [item for item in items if isinstance(item, dict | list)]
    if level:
        raise InvalidRequestError(f"{path} nests more than {MAX_DEPTH} objects and lists", param=path)


def _tool(path: str, value: Any) -> FunctionTool:
    if not isinstance(value, dict):
        raise reject(path, value, 'an object {"type": "function", "function": {...}}')
    if value.get("type", "function") != "function":
        raise reject(f"{path}.type", value.get("type"), '"function": the server runs no tools of its own')
    return checked_function(f"{path}.function", value.get("function"))
