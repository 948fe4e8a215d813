"""Schemas of /v1/responses: bodies, replies and events."""

from sgl_runtime.server.openai_fields import EFFORTS, MAX_TOP_LOGPROBS
from sgl_runtime.server.openai_tools import MAX_TOOLS
from sgl_runtime.server.openapi.openai_bodies import SHARED
from sgl_runtime.server.openapi.schemas import (
    BOOLEAN,
    COUNT,
    NAME,
    OBJECT,
    TEXT,
    Schema,
    body,
    either,
    integer,
    list_of,
    nullable,
    one_of_words,
    record,
    ref,
)
from sgl_runtime.server.responses_body import MAX_METADATA, RESPONSES_FIELDS

_PART = record({"type": one_of_words(("input_text", "output_text", "text")), "text": TEXT})
_CONTENT = either(TEXT, list_of(_PART))
ITEM = either(
    record({"role": one_of_words(("user", "assistant", "system", "developer")), "content": _CONTENT}),
    record({"type": {"const": "function_call"}, "call_id": TEXT, "name": TEXT, "arguments": TEXT}),
    record({"type": {"const": "function_call_output"}, "call_id": TEXT, "output": _CONTENT}),
    record({"type": {"const": "reasoning"}, "summary": list_of(record({"text": TEXT}))}),
)
_TOOL = {
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "name": {"type": "string", "pattern": r"^[\w.:/-]{1,128}$"},
        "description": nullable(TEXT),
        "parameters": nullable(OBJECT),
        "strict": nullable(BOOLEAN),
    },
    "required": ["type", "name"],
}
_FORMAT = either(
    record({"type": one_of_words(("text", "json_object"))}),
    body(
        {"type": {"const": "json_schema"}, "name": NAME, "description": TEXT, "schema": OBJECT, "strict": BOOLEAN},
        required=("type", "name", "schema"),
    ),
)
_SUMMARY = one_of_words(("auto", "concise", "detailed"))
_FIELDS: dict[str, Schema] = {
    **SHARED,
    "input": either(TEXT, list_of(ref("ResponseItem"), least=1)),
    "instructions": TEXT,
    "previous_response_id": TEXT,
    "max_output_tokens": SHARED["max_tokens"],
    "tools": list_of(_TOOL, most=MAX_TOOLS),
    "tool_choice": either(one_of_words(("none", "auto", "required")), OBJECT),
    "parallel_tool_calls": BOOLEAN,
    "text": body({"format": _FORMAT, "verbosity": one_of_words(("low", "medium", "high"))}),
    "reasoning": body({"effort": one_of_words(EFFORTS), "summary": _SUMMARY, "generate_summary": _SUMMARY}),
    "include": list_of(one_of_words(("message.output_text.logprobs", "reasoning.encrypted_content"))),
    "top_logprobs": integer(0, MAX_TOP_LOGPROBS),
    "truncation": one_of_words(("auto", "disabled")),
    "background": BOOLEAN,
    "store": BOOLEAN,
    "metadata": {"type": "object", "additionalProperties": TEXT, "maxProperties": MAX_METADATA},
    "chat_template_kwargs": OBJECT,
    "max_tool_calls": integer(0),
    "user": TEXT,
    "safety_identifier": TEXT,
    "prompt_cache_key": TEXT,
}
REQUEST = body({name: _FIELDS[name] for name in RESPONSES_FIELDS}, required=("input",))

_USAGE = record(
    {
        "input_tokens": COUNT,
        "input_tokens_details": record({"cached_tokens": COUNT}),
        "output_tokens": COUNT,
        "output_tokens_details": record({"reasoning_tokens": COUNT}),
        "total_tokens": COUNT,
    }
)
RESPONSE = record(
    {
        "id": TEXT,
        "object": {"const": "response"},
        "created_at": COUNT,
        "model": TEXT,
        "status": one_of_words(("queued", "in_progress", "completed", "incomplete", "failed", "cancelled")),
        "error": nullable(record({"code": TEXT, "message": TEXT})),
        "incomplete_details": nullable(OBJECT),
        "output": list_of(record({"id": TEXT, "type": TEXT})),
        "usage": nullable(_USAGE),
    }
)
EVENT = record({"type": TEXT, "sequence_number": COUNT}, optional=("sequence_number",))
COUNTED = record({"object": {"const": "response.input_tokens"}, "input_tokens": COUNT})
DELETED = record({"id": TEXT, "object": {"const": "response"}, "deleted": BOOLEAN})
ITEMS = record(
    {
        "object": {"const": "list"},
        "data": list_of(record({"id": TEXT, "type": TEXT})),
        "first_id": nullable(TEXT),
        "last_id": nullable(TEXT),
        "has_more": BOOLEAN,
    }
)
