"""Schemas of /v1/messages: bodies, replies and events."""

from sgl_runtime.server.anthropic_body import ANTHROPIC_FIELDS
from sgl_runtime.server.openai_fields import EFFORTS
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
)

_WITHOUT_EFFECT: Schema = {"description": "Taken, and changes nothing."}
_TEXT_BLOCK = record({"type": {"const": "text"}, "text": TEXT})
_BLOCK = either(
    _TEXT_BLOCK,
    record({"type": {"const": "tool_use"}, "id": NAME, "name": NAME, "input": OBJECT}),
    record({"type": {"const": "tool_result"}, "tool_use_id": NAME}),
    record({"type": {"const": "thinking"}, "thinking": TEXT}),
)
_MESSAGE = record({"role": one_of_words(("user", "assistant")), "content": either(TEXT, list_of(_BLOCK))})
_TOOL = {
    "type": "object",
    "properties": {
        "type": nullable({"const": "custom"}),
        "name": {"type": "string", "pattern": r"^[\w.:/-]{1,128}$"},
        "description": nullable(TEXT),
        "input_schema": OBJECT,
        "strict": nullable(BOOLEAN),
    },
    "required": ["name", "input_schema"],
}
_FIELDS: dict[str, Schema] = {
    **SHARED,
    "messages": list_of(_MESSAGE, least=1),
    "max_tokens": integer(1),
    "system": either(TEXT, list_of(_TEXT_BLOCK)),
    "stop_sequences": list_of(NAME),
    "tools": list_of(_TOOL, most=MAX_TOOLS),
    "tool_choice": body(
        {"type": one_of_words(("auto", "any", "tool", "none")), "name": TEXT, "disable_parallel_tool_use": BOOLEAN},
        required=("type",),
    ),
    "thinking": body(
        {
            "type": one_of_words(("enabled", "disabled", "adaptive", "between_tools")),
            "budget_tokens": integer(1),
            "display": one_of_words(("summarized", "omitted")),
        },
        required=("type",),
    ),
    "output_config": body(
        {
            "effort": one_of_words(EFFORTS),
            "format": body({"type": {"const": "json_schema"}, "schema": OBJECT}, required=("type", "schema")),
        }
    ),
    "chat_template_kwargs": OBJECT,
    "metadata": body({"user_id": TEXT}),
    "service_tier": _WITHOUT_EFFECT,
    "cache_control": _WITHOUT_EFFECT,
    "inference_geo": _WITHOUT_EFFECT,
    "speed": _WITHOUT_EFFECT,
}
REQUEST = body({name: _FIELDS[name] for name in ANTHROPIC_FIELDS}, required=("messages", "max_tokens"))
COUNT_REQUEST = body({name: _FIELDS[name] for name in ANTHROPIC_FIELDS}, required=("messages",))

_USAGE = record({"input_tokens": COUNT, "output_tokens": COUNT})
MESSAGE = record(
    {
        "id": TEXT,
        "type": {"const": "message"},
        "role": {"const": "assistant"},
        "model": TEXT,
        "content": list_of(record({"type": TEXT})),
        "stop_reason": nullable(TEXT),
        "stop_sequence": nullable(TEXT),
        "usage": _USAGE,
    }
)
EVENT = record({"type": TEXT})
COUNTED = record({"input_tokens": COUNT})
ERROR = record({"type": {"const": "error"}, "error": record({"type": TEXT, "message": TEXT})})
