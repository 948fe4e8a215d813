"""Schemas of the bodies of requests, made of the tables that check them."""

from typing import get_args

from sgl_runtime.docstring_attributes import read_attributes
from sgl_runtime.ipc.messages import PROFILE_ACTIVITIES, PauseMode
from sgl_runtime.sampling_params import (
    GRAMMAR_KINDS,
    MAX_CONSTRAINT,
    MAX_STOP_IDS,
    MAX_STOP_REGEXES,
    MAX_STOPS,
    SAMPLING_CHECKS,
    IntegerRange,
    NumberRange,
    SamplingParams,
)
from sgl_runtime.server.control_paths import MAX_EVENTS, MAX_SESSION_ID, MAX_WAIT_S
from sgl_runtime.server.embedding_paths import EMBEDDINGS_FIELDS, ENCODE_FIELDS
from sgl_runtime.server.field_checks import MAX_ID, MAX_INTEGER
from sgl_runtime.server.generate_request import FIELDS, GenerateRequest
from sgl_runtime.server.openai_tools import MAX_TOOLS
from sgl_runtime.server.openapi.schemas import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    NAME,
    NULL,
    NUMBER,
    OBJECT,
    TEXT,
    Schema,
    body,
    either,
    integer,
    list_of,
    nullable,
    one_of_words,
    range_schema,
    record,
    ref,
    seconds,
)
from sgl_runtime.server.operation_paths import MAX_PROFILE_STEPS
from sgl_runtime.server.page_paths import MAX_LISTED, MAX_SHOWN_TOKENS
from sgl_runtime.server.parser_paths import MAX_TEXT
from sgl_runtime.server.reasoning_parsers import REASONING_PARSERS
from sgl_runtime.server.request_options import MAX_PROBE_IDS, OPTIONS, IntegerOption
from sgl_runtime.server.scoring_labels import LABEL_FIELDS
from sgl_runtime.server.scoring_paths import CLASSIFY_FIELDS, PAIR_FIELDS, RERANK_FIELDS
from sgl_runtime.server.token_paths import MAX_IDS, MAX_TEXTS
from sgl_runtime.server.tool_parsers.table import TOOL_PARSERS

TOKEN_IDS = list_of(COUNT)
_ID: Schema = {**NAME, "maxLength": MAX_ID}
_INPUT = either(NAME, list_of(COUNT, least=1), list_of(either(NAME, list_of(COUNT, least=1)), least=1))
_ROWS = list_of(list_of(NUMBER, least=1), least=1)
_EMBEDS = either(_ROWS, record({"data": TEXT, "shape": list_of(integer(1), least=2, most=2)}))

# Fields of `sampling_params` that are checked by more than a range.
_SAMPLING: dict[str, Schema] = {
    "logit_bias": {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9]{1,9}$"},
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
    },
    "stop": either(NAME, list_of(NAME, most=MAX_STOPS)),
    "stop_regex": either(NAME, list_of(NAME, most=MAX_STOP_REGEXES)),
    "stop_token_ids": either(COUNT, list_of(COUNT, most=MAX_STOP_IDS)),
    "ignore_eos": BOOLEAN,
    "no_stop_trim": BOOLEAN,
    "skip_special_tokens": BOOLEAN,
    "choices": {**list_of(NAME, least=1), "uniqueItems": True},
    "regex": {**TEXT, "maxLength": MAX_CONSTRAINT},
    "json_schema": either(OBJECT, BOOLEAN, NAME),
    "json_schema_lenient": BOOLEAN,
    "ebnf": {**NAME, "maxLength": MAX_CONSTRAINT},
    "structural_tag": either(OBJECT, NAME),
    "custom_params": OBJECT,
}
SAMPLING_FIELDS: dict[str, Schema] = {
    name: range_schema(check) if isinstance(check, IntegerRange | NumberRange) else _SAMPLING[name]
    for name, check in SAMPLING_CHECKS.items()
}

SESSION_TURN = body(
    {
        "id": _ID,
        "rid": _ID,
        "offset": integer(-MAX_INTEGER),
        "replace": BOOLEAN,
        "drop_previous_output": BOOLEAN,
    },
    required=("id",),
)
# Options of `/generate` that are checked by more than a range.
_OPTIONS: dict[str, Schema] = {
    "return_logprob": BOOLEAN,
    "token_ids_logprob": list_of({"type": "integer"}, most=MAX_PROBE_IDS),
    "extra_key": NAME,
    "return_hidden_states": BOOLEAN,
    "session_params": ref("SessionTurn"),
    "custom_logit_processor": NAME,
}
OPTION_FIELDS: dict[str, Schema] = {
    name: integer(check.low, check.high) if isinstance(check, IntegerOption) else _OPTIONS[name]
    for name, check in OPTIONS.items()
}


def _in_batch(schema: Schema) -> Schema:
    """A value, or for a batch a list with one for each prompt."""
    return either(schema, list_of(nullable(schema)))


_GENERATE: dict[str, Schema] = {
    "text": _in_batch(TEXT),
    "input_ids": either(TOKEN_IDS, list_of(nullable(TOKEN_IDS))),
    "input_embeds": either(_EMBEDS, list_of(nullable(_EMBEDS), least=1)),
    "sampling_params": _in_batch(ref("SamplingParams")),
    "rid": _in_batch(_ID),
    "stream": BOOLEAN,
    "return_text_in_logprobs": BOOLEAN,
    "return_text_ids": BOOLEAN,
    **{name: _in_batch(schema) for name, schema in OPTION_FIELDS.items()},
    "lora_path": NULL,
}

SAMPLING_HELPS = read_attributes(SamplingParams.__doc__ or "")[1]
SAMPLING_PARAMS = body(SAMPLING_FIELDS, helps=SAMPLING_HELPS)
_GENERATE_HELPS = read_attributes(GenerateRequest.__doc__ or "")[1]
GENERATE = body(
    {name: _GENERATE[name] for name in FIELDS},
    any_of=("text", "input_ids", "input_embeds"),
    helps={name: _GENERATE_HELPS[name] for name in OPTIONS},
)

_REFUSAL = record({"type": {"const": "refusal"}, "refusal": TEXT})
_CONTENT = either(TEXT, list_of(either(record({"type": {"const": "text"}, "text": TEXT}), _REFUSAL), least=1))
_MESSAGE: dict[str, Schema] = {
    "role": TEXT,
    "content": _CONTENT,
    "name": nullable(TEXT),
    "tool_call_id": nullable(TEXT),
    "reasoning_content": nullable(TEXT),
}
MESSAGE = either(
    record(_MESSAGE, optional=("name", "tool_call_id", "reasoning_content")),
    record(
        {
            **_MESSAGE,
            "role": {"const": "assistant"},
            "content": nullable(_CONTENT),
            "tool_calls": list_of(ref("ToolCall"), least=1),
        },
        optional=("content", "name", "tool_call_id", "reasoning_content"),
    ),
)
FUNCTION = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": r"^[\w.:/-]{1,128}$"},
        "description": nullable(TEXT),
        "parameters": nullable(OBJECT),
        "strict": nullable(BOOLEAN),
    },
    "required": ["name"],
}
TOOLS = list_of(
    {
        "type": "object",
        "properties": {"type": {"const": "function"}, "function": ref("Function")},
        "required": ["function"],
    },
    most=MAX_TOOLS,
)

_VECTOR_OPTIONS: dict[str, Schema] = {
    "model": ANYTHING,
    "user": ANYTHING,
    "rid": either(_ID, list_of(_ID)),
    "priority": integer(-MAX_INTEGER),
    "truncate_prompt_tokens": either(integer(1), {"const": -1}),
}
_TEXTS = either(NAME, list_of(NAME, least=1))
_VECTOR_FIELDS: dict[str, Schema] = {
    **_VECTOR_OPTIONS,
    "text": _INPUT,
    "input_ids": _INPUT,
    "input": _INPUT,
    "sampling_params": ref("SamplingParams"),
    "dimensions": integer(1),
    "encoding_format": one_of_words(("float", "base64")),
    "query": NAME,
    "documents": list_of(either(NAME, body({"text": NAME}, required=("text",))), least=1),
    "top_n": integer(1),
    "return_documents": BOOLEAN,
    "text_1": _TEXTS,
    "text_2": _TEXTS,
}
ENCODE = body({name: _VECTOR_FIELDS[name] for name in ENCODE_FIELDS})
EMBEDDINGS = body({name: _VECTOR_FIELDS[name] for name in EMBEDDINGS_FIELDS}, required=("input",))
CLASSIFY = body({name: _VECTOR_FIELDS[name] for name in CLASSIFY_FIELDS}, required=("input",))
RERANK = body({name: _VECTOR_FIELDS[name] for name in RERANK_FIELDS}, required=("query", "documents"))
_LABELS: dict[str, Schema] = {
    "query": either(NAME, TOKEN_IDS),
    "items": either(NAME, list_of(either(NAME, TOKEN_IDS), least=1)),
    "label_token_ids": list_of(COUNT, least=1, most=MAX_PROBE_IDS),
    "apply_softmax": BOOLEAN,
    "item_first": BOOLEAN,
}
SCORE = either(
    body({name: _VECTOR_FIELDS[name] for name in PAIR_FIELDS}, required=("text_1", "text_2")),
    body(
        {
            **{name: _LABELS[name] for name in LABEL_FIELDS},
            **{name: _VECTOR_OPTIONS[name] for name in ("model", "user", "priority")},
        },
        required=("query", "items", "label_token_ids"),
    ),
)

_TEXT_OR_TEXTS = either(TEXT, list_of(TEXT, most=MAX_TEXTS))
TOKENIZE = body({"text": _TEXT_OR_TEXTS, "add_special_tokens": BOOLEAN}, required=("text",))
TOKENIZE_PROMPT = body(
    {"model": ANYTHING, "prompt": _TEXT_OR_TEXTS, "add_special_tokens": BOOLEAN}, required=("prompt",)
)
DETOKENIZE = body(
    {
        "model": ANYTHING,
        "tokens": either(list_of(COUNT, most=MAX_IDS), list_of(TOKEN_IDS, most=MAX_TEXTS)),
        "skip_special_tokens": BOOLEAN,
    },
    required=("tokens",),
)
_OUTPUT: Schema = {**TEXT, "maxLength": MAX_TEXT}
ROLE_AFFIXES = body({"messages": list_of(ref("Message")), "role": TEXT}, required=("role",))
PARSE_FUNCTION_CALL = body(
    {"text": _OUTPUT, "tools": TOOLS, "tool_call_parser": one_of_words(TOOL_PARSERS.names())}, required=("text",)
)
SEPARATE_REASONING = body({"text": _OUTPUT, "reasoning_parser": one_of_words(REASONING_PARSERS)}, required=("text",))

FLUSH_CACHE = body({"timeout": seconds(MAX_WAIT_S)})
KV_EVENTS = body({"since": integer(0), "limit": integer(1, MAX_EVENTS)})
ABORT_REQUEST = body({"rid": _ID, "abort_all": BOOLEAN}, any_of=("rid", "abort_all"))
PAUSE_GENERATION = body({"mode": one_of_words(get_args(PauseMode))})
NOTHING = body({})
OPEN_SESSION = body(
    {
        "capacity_of_str_len": integer(1),
        "session_id": {**NAME, "maxLength": MAX_SESSION_ID},
        "timeout": seconds(MAX_WAIT_S),
    },
    required=("capacity_of_str_len",),
)
CLOSE_SESSION = body({"session_id": _ID}, required=("session_id",))
CONFIGURE_LOGGING = body(
    {
        "log_requests": BOOLEAN,
        "log_requests_level": integer(0, 3),
        "dump_requests_folder": TEXT,
        "dump_requests_threshold": integer(1),
    }
)
START_PROFILE = body(
    {
        "output_dir": NAME,
        "num_steps": integer(1, MAX_PROFILE_STEPS),
        "activities": list_of(one_of_words(PROFILE_ACTIVITIES), least=1),
        "record_shapes": BOOLEAN,
        "with_stack": BOOLEAN,
    }
)
_CONSTRAINT = {**NAME, "maxLength": MAX_CONSTRAINT}
VALIDATE_GRAMMAR = body(
    {
        **{name: SAMPLING_FIELDS[name] for name in GRAMMAR_KINDS if name not in ("regex", "ebnf")},
        "regex": _CONSTRAINT,
        "ebnf": _CONSTRAINT,
        "json_schema_lenient": BOOLEAN,
    },
    any_of=GRAMMAR_KINDS,
)
REQUEST_HISTORY = body({"limit": integer(1, MAX_LISTED)})
INSPECT_REQUEST = body(
    {
        "rid": TEXT,
        "key": integer(0),
        "prompt_begin": integer(0),
        "output_begin": integer(0),
        "limit": integer(1, MAX_SHOWN_TOKENS),
    },
    any_of=("rid", "key"),
)
