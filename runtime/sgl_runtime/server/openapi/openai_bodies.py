"""Schemas of the bodies of the OpenAI paths, made of the tables that check them."""

from sgl_runtime.sampling_params import GRAMMAR_KINDS, MAX_SAMPLES
from sgl_runtime.server.openai_chat_body import CHAT_FIELDS
from sgl_runtime.server.openai_completion_body import COMPLETION_FIELDS
from sgl_runtime.server.openai_fields import EFFORTS, MAX_TOP_LOGPROBS, NATIVE, SAMPLING, WITHOUT_EFFECT
from sgl_runtime.server.openapi.bodies import OPTION_FIELDS, SAMPLING_FIELDS, SAMPLING_HELPS, TOKEN_IDS, TOOLS
from sgl_runtime.server.openapi.schemas import (
    ANYTHING,
    BOOLEAN,
    NAME,
    NULL,
    OBJECT,
    TEXT,
    Schema,
    body,
    either,
    integer,
    list_of,
    one_of_words,
    ref,
)

_STREAM_OPTIONS = body({"include_usage": BOOLEAN, "continuous_usage_stats": BOOLEAN, "include_obfuscation": BOOLEAN})
_JSON_SCHEMA = body(
    {"name": TEXT, "description": TEXT, "schema": SAMPLING_FIELDS["json_schema"], "strict": BOOLEAN},
    required=("schema",),
)
_RESPONSE_FORMAT = either(
    {"type": "object", "properties": {"type": one_of_words(("text", "json_object"))}, "required": ["type"]},
    {
        "type": "object",
        "properties": {"type": {"const": "json_schema"}, "json_schema": _JSON_SCHEMA},
        "required": ["type", "json_schema"],
    },
    {"type": "object", "properties": {"type": {"const": "structural_tag"}}, "required": ["type"]},
)
_STRUCTURED_OUTPUTS = body(
    {
        "json": SAMPLING_FIELDS["json_schema"],
        "json_object": BOOLEAN,
        "regex": SAMPLING_FIELDS["regex"],
        "choice": SAMPLING_FIELDS["choices"],
        "grammar": SAMPLING_FIELDS["ebnf"],
        "structural_tag": SAMPLING_FIELDS["structural_tag"],
    }
)
_LIMIT = SAMPLING_FIELDS["max_new_tokens"]
_NATIVE: dict[str, Schema] = {**OPTION_FIELDS, "rid": NAME, "lora_path": NULL}
SHARED: dict[str, Schema] = {
    "model": {**ANYTHING, "description": "Name of the served model; any other is served by it, too."},
    "stream": BOOLEAN,
    "stream_options": _STREAM_OPTIONS,
    "max_tokens": _LIMIT,
    "response_format": _RESPONSE_FORMAT,
    "structured_outputs": _STRUCTURED_OUTPUTS,
    **{kind: SAMPLING_FIELDS[kind] for kind in GRAMMAR_KINDS},
    **{name: _NATIVE[native] for name, native in NATIVE.items()},
    **{name: SAMPLING_FIELDS[native] for name, native in SAMPLING.items()},
    **{name: {"description": "Taken, and changes nothing."} for name in WITHOUT_EFFECT},
}
_NUM_TOP = integer(0, MAX_TOP_LOGPROBS)
_TOOL_CHOICE = either(one_of_words(("none", "auto", "required")), OBJECT)
_CHAT: dict[str, Schema] = {
    **SHARED,
    "logprobs": BOOLEAN,
    "messages": list_of(ref("Message"), least=1),
    "max_completion_tokens": _LIMIT,
    "top_logprobs": _NUM_TOP,
    "tools": TOOLS,
    "tool_choice": _TOOL_CHOICE,
    "parallel_tool_calls": BOOLEAN,
    "reasoning_effort": one_of_words(EFFORTS),
    "separate_reasoning": BOOLEAN,
    "stream_reasoning": BOOLEAN,
    "chat_template_kwargs": OBJECT,
    "add_generation_prompt": BOOLEAN,
    "continue_final_message": BOOLEAN,
    "documents": list_of(ANYTHING),
    "modalities": {"type": "array", "const": ["text"]},
    "prediction": {"description": "Taken, and changes nothing."},
    "verbosity": {"description": "Taken, and changes nothing."},
}
_PROMPT = either(TEXT, list_of(TEXT, least=1), {**TOKEN_IDS, "minItems": 1}, list_of(TOKEN_IDS, least=1))
_COMPLETION: dict[str, Schema] = {
    **SHARED,
    "logprobs": _NUM_TOP,
    "prompt": _PROMPT,
    "echo": BOOLEAN,
    "best_of": integer(1, MAX_SAMPLES),
    "suffix": {"type": "string", "maxLength": 0},
}
_HELPS = {name: SAMPLING_HELPS[native] for name, native in SAMPLING.items() if native in SAMPLING_HELPS}

CHAT = body({name: _CHAT[name] for name in CHAT_FIELDS}, required=("messages",), helps=_HELPS)
COMPLETION = body({name: _COMPLETION[name] for name in COMPLETION_FIELDS}, required=("prompt",), helps=_HELPS)

TOOL_CALL = {
    "type": "object",
    "properties": {
        "id": TEXT,
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {"name": TEXT, "arguments": either(TEXT, OBJECT)},
            "required": ["name"],
        },
    },
    "required": ["function"],
}
