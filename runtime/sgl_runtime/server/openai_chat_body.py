"""The body of /v1/chat/completions, checked and turned into a ChatCall."""

from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.chat.chat_call import ChatCall, ReasoningOptions, TemplateOptions
from sgl_runtime.server.field_checks import checked_boolean
from sgl_runtime.server.message_checks import checked_messages
from sgl_runtime.server.openai_fields import (
    COMMON,
    StreamUsage,
    checked_body,
    checked_num_top,
    checked_variables,
    effort_variables,
    native_options,
    native_sampling,
    read_constraint,
    read_stream_usage,
)
from sgl_runtime.server.openai_tools import checked_tool_choice, checked_tools

CHAT_FIELDS = (
    *COMMON,
    "messages",
    "max_completion_tokens",
    "top_logprobs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "separate_reasoning",
    "stream_reasoning",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "documents",
    "modalities",
    # A guess at the output, and a wish for its length: neither changes what is right.
    "prediction",
    "verbosity",
)
_REFUSED = {
    "functions": "give tools instead",
    "function_call": "give tool_choice instead",
    "audio": "the served model writes text alone",
    "web_search_options": "the server searches nothing",
    "moderation": "the server moderates nothing",
}


@dataclass(frozen=True, kw_only=True)
class OpenAIChatBody:
    """A checked body.

    Attributes:
        call: What the core runs.
        logprobs: Whether log probabilities are wanted.
        num_top_logprobs: How many of the likeliest tokens are wanted at each place.
        usage: When a stream tells token counts.
        constraint_field: The field that constrains the output; None where none does.
        limit_field: The field that limits the output.
    """

    call: ChatCall
    logprobs: bool
    num_top_logprobs: int
    usage: StreamUsage
    constraint_field: str | None
    limit_field: str


def parse_chat(payload: Any) -> OpenAIChatBody:
    """Check a body of /v1/chat/completions.

    Raises:
        InvalidRequestError: the first thing that is wrong, by the name it has in this body.
    """
    fields = checked_body(payload, CHAT_FIELDS, _REFUSED)
    messages = checked_messages(fields.get("messages"))
    logprobs = checked_boolean("logprobs", fields.get("logprobs", False))
    num_top_logprobs = checked_num_top("top_logprobs", fields.get("top_logprobs", 0))
    if num_top_logprobs and not logprobs:
        raise reject("top_logprobs", num_top_logprobs, "0 unless logprobs is true")
    if fields.get("modalities", ["text"]) != ["text"]:
        raise reject("modalities", fields["modalities"], '["text"]')
    stream = checked_boolean("stream", fields.get("stream", False))
    tools = checked_tools(fields.get("tools", []))
    parallel = checked_boolean("parallel_tool_calls", fields.get("parallel_tool_calls", True))
    constraint = read_constraint(fields)
    limit_field = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    sampling = {**native_sampling(fields), **constraint.sampling, "max_new_tokens": fields.get(limit_field)}
    tool_choice = checked_tool_choice(fields.get("tool_choice"), tools, parallel=parallel)
    call = ChatCall(
        messages=messages,
        tools=tools,
        tool_choice=tool_choice,
        template=_template(fields),
        reasoning=ReasoningOptions(
            separate=checked_boolean("separate_reasoning", fields.get("separate_reasoning", True)),
            stream=checked_boolean("stream_reasoning", fields.get("stream_reasoning", True)),
        ),
        sampling=sampling,
        options={
            **native_options(fields),
            "return_logprob": logprobs,
            "top_logprobs_num": num_top_logprobs,
        },
        stream=stream,
    )
    is_forced = tool_choice.mode == "required"
    return OpenAIChatBody(
        call=call,
        logprobs=logprobs,
        num_top_logprobs=num_top_logprobs,
        usage=read_stream_usage(fields.get("stream_options"), stream=stream),
        constraint_field="tools" if is_forced or (tools and constraint.field is None) else constraint.field,
        limit_field=limit_field,
    )


def _template(fields: dict[str, Any]) -> TemplateOptions:
    variables = effort_variables("reasoning_effort", fields.get("reasoning_effort"))
    given = checked_variables(fields)
    documents = fields.get("documents")
    if documents is not None and not isinstance(documents, list):
        raise reject("documents", documents, "a list of documents")
    opens = checked_boolean("add_generation_prompt", fields.get("add_generation_prompt", True))
    continues = checked_boolean("continue_final_message", fields.get("continue_final_message", False))
    if continues and fields.get("add_generation_prompt") is True:
        raise InvalidRequestError(
            "add_generation_prompt and continue_final_message are both true; a reply begins a message or goes on"
            " with one",
            param="add_generation_prompt",
        )
    return TemplateOptions(
        add_generation_prompt=opens,
        continue_final_message=continues,
        documents=documents,
        variables={**variables, **given},
    )
