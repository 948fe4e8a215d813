"""The bodies of /v1/messages and /v1/messages/count_tokens, checked and turned into a ChatCall."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.anthropic_messages import checked_conversation
from sgl_runtime.server.chat.chat_call import (
    ChatCall,
    ChoiceMode,
    FunctionTool,
    ReasoningOptions,
    TemplateOptions,
    ToolChoice,
)
from sgl_runtime.server.field_checks import checked_boolean, checked_fields, checked_integer, checked_text
from sgl_runtime.server.openai_fields import (
    NATIVE,
    SAMPLING,
    Constraint,
    checked_body,
    checked_variables,
    effort_variables,
    native_options,
    native_sampling,
    read_constraint,
    thinking_variables,
)
from sgl_runtime.server.openai_tools import checked_function, distinct_tools, named_function

_REFUSED = {
    "container": "the server runs no code",
    "mcp_servers": "the server runs no tools of its own",
    "context_management": "the server edits no context",
    "stop": "give stop_sequences instead",
    "n": "a message is one output",
}
ANTHROPIC_FIELDS = (
    "model",
    "messages",
    "max_tokens",
    "system",
    "stop_sequences",
    "stream",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "chat_template_kwargs",
    *(name for name in (*SAMPLING, *NATIVE) if name not in _REFUSED),
    "regex",
    "choices",
    "ebnf",
    "structural_tag",
    # What a client may say to a service, and what a server of one model has no use for.
    "metadata",
    "service_tier",
    "cache_control",
    "inference_geo",
    "speed",
)
_THINKING = ("enabled", "disabled", "adaptive", "between_tools")
_CHOICES: dict[str, ChoiceMode] = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}


@dataclass(frozen=True, kw_only=True)
class AnthropicBody:
    """A checked body.

    Attributes:
        call: What the core runs.
        stop_sequences: Texts that end the output.
        max_tokens: Limit on the output; None where there is none.
        shows_thinking: Whether the reply has blocks of thinking.
        constraint_field: The field that constrains the output; None where none does.
    """

    call: ChatCall
    stop_sequences: tuple[str, ...]
    max_tokens: int | None
    shows_thinking: bool
    constraint_field: str | None


def parse_anthropic(payload: Any, *, counts_only: bool = False) -> AnthropicBody:
    """Check a body.

    Args:
        payload: The body.
        counts_only: Whether only the tokens of its prompt are wanted, so that it needs no limit.

    Raises:
        InvalidRequestError: the first thing that is wrong, by the name it has in this body.
    """
    fields = checked_body(payload, ANTHROPIC_FIELDS, _REFUSED)
    messages = checked_conversation(fields.get("messages"), fields.get("system"))
    limit = None
    if not counts_only or "max_tokens" in fields:
        limit = checked_integer("max_tokens", fields.get("max_tokens"), low=1)
    stops = _stop_sequences(fields.get("stop_sequences", []))
    stream = checked_boolean("stream", fields.get("stream", False))
    tools = distinct_tools(fields.get("tools", []), _tool, name_field="name")
    tool_choice = _tool_choice(fields.get("tool_choice"), tools)
    thinking = _thinking(fields.get("thinking"), limit)
    output = checked_fields(fields.get("output_config", {}), ("effort", "format"), path="output_config")
    constraint = _constraint(fields, output.get("format"))
    metadata = checked_fields(fields.get("metadata", {}), ("user_id",), path="metadata")
    checked_text("metadata.user_id", metadata.get("user_id", ""))
    variables = effort_variables("output_config.effort", output.get("effort")) | thinking.variables
    # Who speaks last goes on: an answer that has begun is not begun anew.
    continues = messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]
    call = ChatCall(
        messages=messages,
        tools=tools,
        tool_choice=tool_choice,
        template=TemplateOptions(
            add_generation_prompt=not continues,
            continue_final_message=continues,
            variables=variables | checked_variables(fields),
        ),
        reasoning=ReasoningOptions(budget=thinking.budget),
        sampling={**native_sampling(fields), **constraint.sampling, "stop": list(stops), "max_new_tokens": limit},
        options=native_options(fields),
        stream=stream,
        must_fit=False,
    )
    is_forced = tool_choice.mode == "required"
    return AnthropicBody(
        call=call,
        stop_sequences=stops,
        max_tokens=limit,
        shows_thinking=thinking.is_shown,
        constraint_field="tools" if is_forced or (tools and constraint.field is None) else constraint.field,
    )


@dataclass(frozen=True)
class _Thinking:
    """What `thinking` asks for."""

    is_shown: bool
    budget: int | None
    variables: dict[str, Any]


def _thinking(value: Any, limit: int | None) -> _Thinking:
    if value is None:
        return _Thinking(is_shown=False, budget=None, variables=thinking_variables(wanted=False))
    fields = checked_fields(value, ("type", "budget_tokens", "display"), path="thinking")
    kind, budget = fields.get("type"), fields.get("budget_tokens")
    if kind not in _THINKING:
        raise reject("thinking.type", kind, f"one of {', '.join(_THINKING)}")
    if fields.get("display", "summarized") not in ("summarized", "omitted"):
        raise reject("thinking.display", fields["display"], '"summarized" or "omitted"')
    if kind == "enabled":
        budget = checked_integer("thinking.budget_tokens", budget, low=1)
        if limit is not None and budget >= limit:
            raise reject("thinking.budget_tokens", budget, f"less than max_tokens, which is {limit}")
    elif budget is not None:
        raise reject("thinking.budget_tokens", budget, "left out unless thinking.type is enabled")
    wanted = kind != "disabled"
    is_shown = wanted and fields.get("display") != "omitted"
    return _Thinking(is_shown=is_shown, budget=budget, variables=thinking_variables(wanted=wanted))


def _stop_sequences(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise reject("stop_sequences", value, "a list of strings")
    for index, text in enumerate(value):
        if not isinstance(text, str) or not text:
            raise reject(f"stop_sequences[{index}]", text, "a non-empty string")
    return tuple(value)


def _tool(path: str, value: Any) -> FunctionTool:
    if not isinstance(value, dict):
        raise reject(path, value, "an object with name and input_schema")
    kind = value.get("type")
    if kind not in (None, "custom"):
        raise reject(f"{path}.type", kind, '"custom", or left out: the server runs no tools of its own')
    schema = value.get("input_schema")
    if not isinstance(schema, dict):
        raise reject(f"{path}.input_schema", schema, "a JSON Schema as an object")
    function = {name: value[name] for name in ("name", "description", "strict") if name in value}
    return checked_function(path, {**function, "parameters": schema})


def _tool_choice(value: Any, tools: tuple[FunctionTool, ...]) -> ToolChoice:
    if value is None:
        return ToolChoice()
    fields = checked_fields(value, ("type", "name", "disable_parallel_tool_use"), path="tool_choice")
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _CHOICES:
        raise reject("tool_choice.type", kind, f"one of {', '.join(_CHOICES)}")
    path = "tool_choice.disable_parallel_tool_use"
    is_one_call = checked_boolean(path, fields.get("disable_parallel_tool_use", False))
    if not tools and kind in ("any", "tool"):
        raise InvalidRequestError(f"tool_choice.type is {kind!r} without tools", param="tool_choice")
    if kind == "tool":
        name = named_function("tool_choice", fields, tools)
        return ToolChoice(mode="required", names=(name,), is_one_call=True)
    return ToolChoice(mode=_CHOICES[kind], is_one_call=is_one_call)


def _constraint(fields: Mapping[str, Any], form: Any) -> Constraint:
    other = read_constraint(fields)
    if form is None:
        return other
    known = checked_fields(form, ("type", "schema"), path="output_config.format")
    if known.get("type") != "json_schema":
        raise reject("output_config.format.type", known.get("type"), '"json_schema"')
    schema = known.get("schema")
    if not isinstance(schema, dict):
        raise reject("output_config.format.schema", schema, "a JSON Schema as an object")
    if other.field is not None:
        raise InvalidRequestError(
            f"{other.field} and output_config.format both constrain the output; give one", param=other.field
        )
    return Constraint({"json_schema": schema}, "output_config.format.schema")
