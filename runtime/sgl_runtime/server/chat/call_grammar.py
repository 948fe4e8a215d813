"""Grammars of tool calls: a list of calls as a JSON Schema, and an answer or calls as a grammar in Lark."""

import json
from collections.abc import Sequence
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.server.chat.chat_call import FunctionTool
from sgl_runtime.server.tool_parsers.tool_format import ToolFormat

# Spaces as the runtime's own grammars have them by default.
_JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def call_list(tools: Sequence[FunctionTool], max_calls: int | None) -> dict[str, Any]:
    """The schema of `[{"name": ..., "parameters": {...}}, ...]`, at least one of them.

    Args:
        tools: The functions.
        max_calls: Most calls; None for no limit.
    """
    items = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool.name},
                # An address of its own: references in the schema start from there.
                "parameters": {"$id": f"https://tool.invalid/{number}", **object_schema(tool)},
            },
            "required": ["name", "parameters"],
            "additionalProperties": False,
        }
        for number, tool in enumerate(tools)
    ]
    schema = {"type": "array", "items": {"anyOf": items}, "minItems": 1}
    return schema if max_calls is None else {**schema, "maxItems": max_calls}


def answer_or_calls(
    answer: dict[str, Any], tools: Sequence[FunctionTool], form: ToolFormat, *, is_one_call: bool
) -> str:
    """The grammar of a reply that is an instance of a schema, or calls in the model's own format.

    Args:
        answer: The schema.
        tools: The functions.
        form: The format; its arguments are JSON.
        is_one_call: Whether there may be one call only.

    Raises:
        InvalidRequestError: the schema is nested too deeply.
    """
    try:
        answer_text = _json(answer, is_strict=True)
    except RecursionError as error:
        raise InvalidRequestError("the schema of the answer is nested too deeply") from error
    options = " | ".join(f"call_{number}" for number in range(len(tools)))
    more = "" if is_one_call else f' ("\\n"? ({options}))*'
    lines = [f"start: answer | ({options}){more}", f"answer: {answer_text}"]
    for number, tool in enumerate(tools):
        arguments = _json(object_schema(tool), is_strict=tool.strict)
        lines.append(f"call_{number}: {json.dumps(form.opening(tool.name))} {arguments} {json.dumps(form.end)}")
    return "\n".join(lines)


def object_schema(tool: FunctionTool) -> dict[str, Any]:
    """The schema of the arguments, which are always an object."""
    if not tool.parameters:
        return {"type": "object", "additionalProperties": False}
    return tool.parameters if "type" in tool.parameters else {**tool.parameters, "type": "object"}


def _json(schema: dict[str, Any], *, is_strict: bool) -> str:
    # What did not ask to be strict may hold keywords that cannot be enforced.
    return "%json " + json.dumps({**schema, "x-guidance": {**_JSON_STYLE, "lenient": not is_strict}})
