"""ToolPlan: how the calls of one chat request are asked for, enforced and read."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import GRAMMAR_KINDS
from sgl_runtime.server.chat.call_grammar import answer_or_calls, call_list, object_schema
from sgl_runtime.server.chat.chat_call import ChatCall, FunctionTool
from sgl_runtime.server.tool_parsers.json_list import JSON_LIST
from sgl_runtime.server.tool_parsers.table import TOOL_PARSERS, tool_format
from sgl_runtime.server.tool_parsers.tool_format import Schemas, ToolFormat

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ToolPlan:
    """A plan.

    Attributes:
        format: How calls are written; None: there are none, and all text is answer.
        schemas: Schemas of the functions that may be called.
        max_calls: Most calls; None for no limit.
        constraint: Fields of `sampling_params` that enforce it; empty where nothing is enforced.
        is_enforced: Whether every call is known to be right.
        definitions: What the template is shown.
    """

    format: ToolFormat | None = None
    schemas: Schemas = field(default_factory=dict)
    max_calls: int | None = None
    constraint: Mapping[str, Any] = field(default_factory=dict)
    is_enforced: bool = False
    definitions: tuple[dict[str, Any], ...] = ()

    @property
    def example(self) -> str:
        """How a call looks; empty where that cannot be said in short."""
        form = self.format
        return form.opening("NAME") + "{...}" + form.end if form is not None and form.begin else ""


def plan_tools(call: ChatCall, *, parser: str | None, is_special: Callable[[str], bool]) -> ToolPlan:
    """The plan of a call.

    Args:
        call: The call.
        parser: Name of the served model's format; None where it is not known.
        is_special: Whether a text holds special tokens, which a grammar cannot ask for.

    Raises:
        InvalidRequestError: the choice cannot be had.
    """
    choice = call.tool_choice
    if not call.tools or choice.mode == "none":
        return ToolPlan()
    callable_tools = [tool for tool in call.tools if choice.names is None or tool.name in choice.names]
    schemas = {tool.name: tool.parameters for tool in callable_tools}
    definitions = tuple({"type": "function", "function": tool.definition} for tool in call.tools)
    max_calls = 1 if choice.is_one_call else None
    if choice.mode == "required":
        constraint: dict[str, Any] = {"json_schema": call_list(callable_tools, max_calls)}
        # What a function did not ask to be strict about may hold what cannot be enforced.
        constraint["json_schema_lenient"] = not any(tool.strict for tool in callable_tools)
        return ToolPlan(
            format=JSON_LIST,
            schemas=schemas,
            max_calls=max_calls,
            constraint=constraint,
            is_enforced=True,
            definitions=definitions,
        )
    if parser is None:
        raise InvalidRequestError(
            f"{call.tools_field} are given, but how the served model writes tool calls is not known; start the server"
            f" with --tool-call-parser ({', '.join(TOOL_PARSERS.names())}), or require a call",
            param=call.tools_field,
        )
    form = tool_format(parser)
    constraint = _free_constraint(call, callable_tools, form, is_special)
    return ToolPlan(format=form, schemas=schemas, max_calls=max_calls, constraint=constraint, definitions=definitions)


def _free_constraint(
    call: ChatCall, tools: list[FunctionTool], form: ToolFormat, is_special: Callable[[str], bool]
) -> dict[str, Any]:
    """What is enforced where the model may call: arguments of strict functions, and the form of the answer."""
    given = [kind for kind in GRAMMAR_KINDS if call.sampling.get(kind) is not None]
    is_writable = bool(form.begin) and not any(map(is_special, (form.trigger, form.begin, form.end)))
    if given == ["json_schema"] and isinstance(call.sampling["json_schema"], dict) and is_writable:
        return {
            "ebnf": answer_or_calls(call.sampling["json_schema"], tools, form, is_one_call=call.tool_choice.is_one_call)
        }
    if given or not any(tool.strict for tool in tools):
        return {}
    if not is_writable:
        logger.warning("strict functions are not enforced: no grammar can write this model's marks of a call")
        return {}
    structures = [
        {
            "begin": form.opening(tool.name),
            "schema": object_schema(tool) if tool.strict else {"type": "object"},
            "end": form.end,
        }
        for tool in tools
    ]
    return {"structural_tag": {"structures": structures, "triggers": [form.trigger]}}
