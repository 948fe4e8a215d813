"""Tools and the choice among them, as /v1/responses has them: without an object `function` around each."""

from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.chat.chat_call import FunctionTool, ToolChoice
from sgl_runtime.server.openai_tools import checked_function, distinct_tools, named_function

_FIELDS = ("name", "description", "parameters", "strict")


def response_tools(value: Any) -> tuple[FunctionTool, ...]:
    """The functions of `tools`.

    Raises:
        InvalidRequestError: something in it is wrong, with its path.
    """
    return distinct_tools(value, _tool, name_field="name")


def response_tool_choice(value: Any, tools: tuple[FunctionTool, ...], *, parallel: bool) -> ToolChoice:
    """What `tool_choice` asks for.

    Args:
        value: The field; None where it is left out.
        tools: The functions that there are.
        parallel: Whether there may be several calls.

    Raises:
        InvalidRequestError: it is malformed, or names a function that there is not.
    """
    if value is None or value in ("none", "auto"):
        return ToolChoice(mode=value or "auto", is_one_call=not parallel)
    if not tools:
        raise InvalidRequestError("tool_choice is given without tools", param="tool_choice")
    if value == "required":
        return ToolChoice(mode="required", is_one_call=not parallel)
    if not isinstance(value, dict):
        raise reject("tool_choice", value, '"none", "auto", "required", a function {"type", "name"}, or allowed_tools')
    if value.get("type") == "function":
        name = named_function("tool_choice", value, tools)
        return ToolChoice(mode="required", names=(name,), is_one_call=True)
    if value.get("type") != "allowed_tools":
        raise reject("tool_choice.type", value.get("type"), '"function" or "allowed_tools"')
    mode, listed = value.get("mode", "auto"), value.get("tools")
    if mode not in ("auto", "required"):
        raise reject("tool_choice.mode", mode, '"auto" or "required"')
    if not isinstance(listed, list) or not listed:
        raise reject("tool_choice.tools", listed, "a non-empty list of functions")
    names = tuple(named_function(f"tool_choice.tools[{index}]", tool, tools) for index, tool in enumerate(listed))
    return ToolChoice(mode=mode, names=names, is_one_call=not parallel)


def shown_tool(tool: FunctionTool) -> dict[str, Any]:
    """A function as the reply repeats it."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.definition.get("description"),
        "parameters": tool.parameters,
        "strict": tool.strict,
    }


def shown_tool_choice(value: Any) -> Any:
    """The checked `tool_choice` of a body as the reply repeats it."""
    if not isinstance(value, dict):
        return value or "auto"
    if value["type"] == "function":
        return {"type": "function", "name": value["name"]}
    tools = [{"type": "function", "name": tool["name"]} for tool in value["tools"]]
    return {"type": "allowed_tools", "mode": value.get("mode", "auto"), "tools": tools}


def _tool(path: str, value: Any) -> FunctionTool:
    if not isinstance(value, dict):
        raise reject(path, value, 'an object {"type": "function", "name": ..., "parameters": {...}}')
    if value.get("type") != "function":
        raise reject(f"{path}.type", value.get("type"), '"function": the server runs no tools of its own')
    return checked_function(path, {name: value[name] for name in _FIELDS if name in value})
