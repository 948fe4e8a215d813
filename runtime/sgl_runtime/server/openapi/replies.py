"""Schemas of replies."""

from dataclasses import fields

from sgl_runtime.model_info import ModelInfo
from sgl_runtime.server.openapi.schemas import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    NUMBER,
    OBJECT,
    TEXT,
    Schema,
    either,
    list_of,
    nullable,
    one_of_words,
    record,
    ref,
)

_LOGPROBS = list_of(list_of(ANYTHING, least=3, most=3))
_FINISH = record(
    {
        "type": one_of_words(("stop", "length", "abort")),
        "matched": nullable(either(TEXT, COUNT)),
        "regex": TEXT,
        "length": COUNT,
        "message": TEXT,
    },
    optional=("matched", "regex", "length", "message"),
)
_META: dict[str, Schema] = {
    "id": TEXT,
    "finish_reason": nullable(_FINISH),
    "prompt_tokens": COUNT,
    "completion_tokens": COUNT,
    "cached_tokens": COUNT,
    "e2e_latency": NUMBER,
}
_META_LOGPROBS = {"output_token_logprobs": _LOGPROBS, "input_token_logprobs": _LOGPROBS}
META = record({**_META, **_META_LOGPROBS}, optional=tuple(_META_LOGPROBS))
GENERATED = record(
    {
        "text": TEXT,
        "output_ids": list_of(COUNT),
        "text_output_ids": list_of(COUNT),
        "text_output_tail": TEXT,
        "text_ids": list_of(COUNT),
        "meta_info": META,
        "index": COUNT,
    },
    optional=("text_output_ids", "text_output_tail", "text_ids", "index"),
)
GENERATE = either(ref("Generated"), list_of(ref("Generated")))

ERROR = record(
    {"error": record({"message": TEXT, "type": TEXT, "param": nullable(TEXT), "code": nullable(TEXT)})},
)

USAGE = record(
    {
        "prompt_tokens": COUNT,
        "completion_tokens": COUNT,
        "total_tokens": COUNT,
        "prompt_tokens_details": record({"cached_tokens": COUNT}),
        "completion_tokens_details": record({"reasoning_tokens": COUNT}),
    },
    optional=("completion_tokens", "prompt_tokens_details", "completion_tokens_details"),
)
_HEAD: dict[str, Schema] = {"id": TEXT, "created": COUNT, "model": TEXT, "system_fingerprint": TEXT}
_CALLS = list_of(
    record({"id": TEXT, "type": {"const": "function"}, "function": record({"name": TEXT, "arguments": TEXT})})
)
_CHAT_END: dict[str, Schema] = {
    "logprobs": nullable(OBJECT),
    "finish_reason": nullable(one_of_words(("stop", "length", "tool_calls", "abort"))),
}
_CHAT_MESSAGE = record(
    {
        "role": {"const": "assistant"},
        "content": nullable(TEXT),
        "refusal": nullable(TEXT),
        "reasoning_content": TEXT,
        "tool_calls": _CALLS,
    },
    optional=("reasoning_content", "tool_calls"),
)
CHAT = record(
    {
        **_HEAD,
        "object": {"const": "chat.completion"},
        "choices": list_of(record({"index": COUNT, "message": _CHAT_MESSAGE, **_CHAT_END}), least=1),
        "usage": ref("Usage"),
    }
)
CHAT_CHUNK = record(
    {
        **_HEAD,
        "object": {"const": "chat.completion.chunk"},
        "choices": list_of(record({"index": COUNT, "delta": OBJECT, **_CHAT_END})),
        "usage": nullable(ref("Usage")),
    },
    optional=("usage",),
)
_COMPLETION_CHOICE = record(
    {
        "index": COUNT,
        "text": TEXT,
        "logprobs": nullable(OBJECT),
        "finish_reason": nullable(one_of_words(("stop", "length", "abort"))),
    }
)
COMPLETION = record(
    {
        **_HEAD,
        "object": {"const": "text_completion"},
        "choices": list_of(_COMPLETION_CHOICE),
        "usage": nullable(ref("Usage")),
    },
    optional=("usage",),
)
MODEL = record(
    {"id": TEXT, "object": {"const": "model"}, "created": COUNT, "owned_by": TEXT, "max_model_len": COUNT},
)
MODELS = record({"object": {"const": "list"}, "data": list_of(ref("Model"))})

_ENCODED = record({"embedding": list_of(NUMBER), "meta_info": META, "index": COUNT}, optional=("index",))
ENCODE = either(_ENCODED, list_of(_ENCODED))
_EMBEDDING = record(
    {"object": {"const": "embedding"}, "index": COUNT, "embedding": either(list_of(NUMBER), TEXT)},
)
EMBEDDINGS = record(
    {"object": {"const": "list"}, "data": list_of(_EMBEDDING), "model": TEXT, "usage": ref("Usage")},
)
_LIST_HEAD: dict[str, Schema] = {"id": TEXT, "object": {"const": "list"}, "created": COUNT, "model": TEXT}
_CLASS = record({"index": COUNT, "label": TEXT, "probs": list_of(NUMBER), "num_classes": COUNT})
CLASSIFY = record({**_LIST_HEAD, "data": list_of(_CLASS), "usage": ref("Usage")})
_RANKED = record(
    {"index": COUNT, "relevance_score": NUMBER, "document": record({"text": TEXT})}, optional=("document",)
)
RERANK = record({"id": TEXT, "model": TEXT, "results": list_of(_RANKED), "usage": ref("Usage")})
_SCORED = record({"index": COUNT, "object": {"const": "score"}, "score": NUMBER})
SCORE = either(
    record({**_LIST_HEAD, "data": list_of(_SCORED), "usage": ref("Usage")}),
    record(
        {
            "object": {"const": "scoring"},
            "model": TEXT,
            "scores": list_of(list_of(NUMBER)),
            "usage": ref("Usage"),
        }
    ),
)

_TOKENS: dict[str, Schema] = {
    "tokens": either(list_of(COUNT), list_of(list_of(COUNT))),
    "count": either(COUNT, list_of(COUNT)),
}
TOKENIZE = record(_TOKENS)
TOKENIZE_PROMPT = record({**_TOKENS, "max_model_len": COUNT})
DETOKENIZE = record({"text": either(TEXT, list_of(TEXT))})
ROLE_AFFIXES = record({"prefix": TEXT, "suffix": TEXT})
_PARSED_CALL = record({"tool_index": COUNT, "name": TEXT, "parameters": TEXT})
PARSE_FUNCTION_CALL = record({"normal_text": TEXT, "calls": list_of(_PARSED_CALL)})
SEPARATE_REASONING = record({"reasoning_text": TEXT, "text": TEXT})

DONE = record({"success": BOOLEAN, "message": TEXT})
ABORTED = record({"aborted": list_of(TEXT)})
EVENTS = record({"events": list_of(OBJECT), "next": COUNT})
SESSION = TEXT
STATUS = record({"status": one_of_words(("ok", "ready"))})
PROBED = record({"status": {"const": "ok"}, "seconds": NUMBER})
LOAD = record(
    {
        "num_reqs": COUNT,
        "num_running_reqs": COUNT,
        "num_waiting_reqs": COUNT,
        "num_tokens": COUNT,
        "max_total_num_tokens": COUNT,
        "token_usage": NUMBER,
    }
)
LOGGING = record(
    {
        "log_requests": BOOLEAN,
        "log_requests_level": COUNT,
        "dump_requests_folder": nullable(TEXT),
        "dump_requests_threshold": COUNT,
    }
)
MODEL_INFO = record({field.name: ANYTHING for field in fields(ModelInfo)})
SERVER_INFO = record({"version": TEXT, "internal_states": list_of(OBJECT, least=1, most=1)})
VALIDATED = record({"valid": BOOLEAN, "message": nullable(TEXT)}, optional=("message",))
LIVE_STATS = record({"time": NUMBER, "num_live": COUNT, "scheduler": nullable(OBJECT)})
HISTORY = record({"capacity": COUNT, "running": list_of(OBJECT), "ended": list_of(OBJECT)})
INSPECTION = OBJECT
