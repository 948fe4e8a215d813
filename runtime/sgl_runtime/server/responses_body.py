"""The body of /v1/responses, checked and turned into a ChatCall."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.chat.chat_call import ChatCall, ReasoningOptions, TemplateOptions
from sgl_runtime.server.field_checks import (
    checked_boolean,
    checked_fields,
    checked_integer,
    checked_name,
    checked_text,
)
from sgl_runtime.server.openai_fields import (
    COMMON,
    Constraint,
    checked_body,
    checked_num_top,
    checked_variables,
    effort_variables,
    native_options,
    native_sampling,
    read_constraint,
    read_stream_usage,
)
from sgl_runtime.server.openai_tools import check_depth
from sgl_runtime.server.responses_items import Item, chat_messages, checked_items
from sgl_runtime.server.responses_tools import response_tool_choice, response_tools, shown_tool, shown_tool_choice

_REFUSED = {
    "conversation": "give previous_response_id, or the items of the conversation",
    "prompt": "the server keeps no prompt templates; give input",
    "messages": "give input instead",
    "max_tokens": "give max_output_tokens instead",
    "max_completion_tokens": "give max_output_tokens instead",
    "response_format": "give text.format instead",
    "logprobs": 'give include ["message.output_text.logprobs"] instead',
    "n": "a response is one output",
    "context_management": "give truncation instead",
    "background_options": "there is one way to run in the background",
    "image": "the served model takes text alone",
    "moderation": "the server moderates nothing",
    "access_programs": "there are none",
}
RESPONSES_FIELDS = (
    *(name for name in COMMON if name not in _REFUSED),
    "input",
    "instructions",
    "previous_response_id",
    "max_output_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "include",
    "top_logprobs",
    "truncation",
    "background",
    "chat_template_kwargs",
    # It counts calls of tools that a service runs itself.
    "max_tool_calls",
)
_LOGPROBS = "message.output_text.logprobs"
# Thinking is in the reply as it is, so that there is nothing to encrypt it for.
_INCLUDABLE = (_LOGPROBS, "reasoning.encrypted_content")
_VERBOSITIES = ("low", "medium", "high")
_SUMMARIES = ("auto", "concise", "detailed")
MAX_METADATA = 16
_MAX_KEY, _MAX_VALUE = 64, 512


@dataclass(frozen=True, kw_only=True)
class ResponsesBody:
    """A checked body.

    Attributes:
        items: Its input.
        call: What the core runs; its messages are those of the input alone.
        instructions: What stands in front of the conversation; None for nothing.
        previous_id: The response that it goes on from; None for none.
        logprobs: Whether log probabilities are wanted.
        num_top_logprobs: How many of the likeliest tokens are wanted at each place.
        summarizes: Whether thinking is shown as its summary.
        truncates: Whether the oldest turns are left out where the context is too short for all.
        store: Whether the response is kept.
        background: Whether it is made while nobody waits.
        constraint_field: The field that constrains the output; None where none does.
        shown: What the reply repeats of the body.
    """

    items: list[Item]
    call: ChatCall
    instructions: str | None
    previous_id: str | None
    logprobs: bool
    num_top_logprobs: int
    summarizes: bool
    truncates: bool
    store: bool
    background: bool
    constraint_field: str | None
    shown: dict[str, Any]


def parse_responses(payload: Any) -> ResponsesBody:
    """Check a body of /v1/responses.

    Raises:
        InvalidRequestError: the first thing that is wrong, by the name it has in this body.
    """
    fields = checked_body(payload, RESPONSES_FIELDS, _REFUSED)
    items = checked_items(fields.get("input"))
    stream, background = (_flag(fields, name, default=False) for name in ("stream", "background"))
    store = _flag(fields, "store", default=True)
    if background and not store:
        raise reject("store", False, "true where background is true")
    read_stream_usage(fields.get("stream_options"), stream=stream)
    include = _include(fields.get("include", []))
    num_top_logprobs = _num_top(fields, include)
    tools = response_tools(fields.get("tools", []))
    parallel = _flag(fields, "parallel_tool_calls", default=True)
    tool_choice = response_tool_choice(fields.get("tool_choice"), tools, parallel=parallel)
    reasoning = _reasoning(fields.get("reasoning", {}))
    text = _text(fields.get("text", {}))
    constraint = _constraint(fields, text)
    truncation = fields.get("truncation", "disabled")
    _check_word("truncation", truncation, ("auto", "disabled"))
    variables = effort_variables("reasoning.effort", reasoning.get("effort")) | checked_variables(fields)
    limit = fields.get("max_output_tokens")
    call = ChatCall(
        messages=chat_messages(items),
        tools=tools,
        tool_choice=tool_choice,
        template=TemplateOptions(variables=variables),
        reasoning=ReasoningOptions(),
        sampling={**native_sampling(fields), **constraint.sampling, "max_new_tokens": limit},
        options={
            **native_options(fields),
            "return_logprob": _LOGPROBS in include,
            "top_logprobs_num": num_top_logprobs,
        },
        stream=stream,
    )
    is_forced = tool_choice.mode == "required"
    return ResponsesBody(
        items=items,
        call=call,
        instructions=_optional(fields, "instructions"),
        previous_id=_optional(fields, "previous_response_id"),
        logprobs=_LOGPROBS in include,
        num_top_logprobs=num_top_logprobs,
        summarizes=reasoning.get("summary") is not None,
        truncates=truncation == "auto",
        store=store,
        background=background,
        constraint_field="tools" if is_forced or (tools and constraint.field is None) else constraint.field,
        shown={
            **_shown_as_given(fields),
            "background": background,
            "parallel_tool_calls": parallel,
            "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
            "store": store,
            "text": text,
            "tool_choice": shown_tool_choice(fields.get("tool_choice")),
            "tools": list(map(shown_tool, tools)),
            "top_logprobs": num_top_logprobs,
            "truncation": truncation,
        },
    )


def _shown_as_given(fields: Mapping[str, Any]) -> dict[str, Any]:
    calls = fields.get("max_tool_calls")
    return {
        "instructions": _optional(fields, "instructions"),
        "max_output_tokens": fields.get("max_output_tokens"),
        "max_tool_calls": None if calls is None else checked_integer("max_tool_calls", calls, low=0),
        "metadata": _metadata(fields.get("metadata", {})),
        "previous_response_id": _optional(fields, "previous_response_id"),
        "prompt_cache_key": _optional(fields, "prompt_cache_key"),
        "safety_identifier": _optional(fields, "safety_identifier"),
        "service_tier": "default",
        "temperature": fields.get("temperature", 1.0),
        "top_p": fields.get("top_p", 1.0),
        "user": _optional(fields, "user"),
    }


def _flag(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    return checked_boolean(name, fields.get(name, default))


def _check_word(path: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise reject(path, value, f"one of {', '.join(allowed)}")


def _num_top(fields: Mapping[str, Any], include: list[str]) -> int:
    number = checked_num_top("top_logprobs", fields.get("top_logprobs", 0))
    if number and _LOGPROBS not in include:
        raise reject("top_logprobs", number, f"0 unless include has {_LOGPROBS}")
    return number


def _optional(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else checked_text(name, value)


def _include(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise reject("include", value, f"a list of {' or '.join(_INCLUDABLE)}")
    for index, name in enumerate(value):
        if name not in _INCLUDABLE:
            raise reject(f"include[{index}]", name, " or ".join(_INCLUDABLE))
    return value


def _reasoning(value: Any) -> dict[str, Any]:
    fields = checked_fields(value, ("effort", "summary", "generate_summary"), path="reasoning")
    for name in ("summary", "generate_summary"):
        if name in fields:
            _check_word(f"reasoning.{name}", fields[name], _SUMMARIES)
    # The second is what the first was once called.
    return {"effort": fields.get("effort"), "summary": fields.get("summary", fields.get("generate_summary"))}


def _text(value: Any) -> dict[str, Any]:
    fields = checked_fields(value, ("format", "verbosity"), path="text")
    verbosity = fields.get("verbosity", "medium")
    _check_word("text.verbosity", verbosity, _VERBOSITIES)
    form = fields.get("format", {"type": "text"})
    kind = form.get("type") if isinstance(form, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        raise reject("text.format", form, 'an object whose type is "text", "json_object" or "json_schema"')
    if kind != "json_schema":
        form = {"type": kind}
    else:
        known = ("type", "name", "description", "schema", "strict")
        form = checked_fields(form, known, path="text.format")
        checked_name("text.format.name", form.get("name"))
        checked_boolean("text.format.strict", form.get("strict", False))
        if not isinstance(form.get("schema"), dict):
            raise reject("text.format.schema", form.get("schema"), "a JSON Schema as an object")
        check_depth("text.format.schema", form["schema"])
        checked_text("text.format.description", form.get("description", ""))
    return {"format": form, "verbosity": verbosity}


def _constraint(fields: Mapping[str, Any], text: dict[str, Any]) -> Constraint:
    other = read_constraint(fields)
    match text["format"]["type"]:
        case "text":
            return other
        case "json_object":
            found = Constraint({"json_schema": {"type": "object"}}, "text.format")
        case _:
            found = Constraint({"json_schema": text["format"]["schema"]}, "text.format.schema")
    if other.field is not None:
        raise InvalidRequestError(
            f"{other.field} and text.format both constrain the output; give one", param=other.field
        )
    return found


def _metadata(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_METADATA:
        raise reject("metadata", value, f"an object of at most {MAX_METADATA} names and strings")
    for name, text in value.items():
        if len(checked_text("metadata", name)) > _MAX_KEY:
            raise reject("metadata", name, f"an object whose names have at most {_MAX_KEY} characters")
        if len(checked_text(f"metadata.{name}", text)) > _MAX_VALUE:
            raise reject(f"metadata.{name}", text, f"a string of at most {_MAX_VALUE} characters")
    return value
