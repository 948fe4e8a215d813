"""Small bodies that the server takes, by path."""

from typing import Any

_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a"]}
_CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
_TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": _SCHEMA}}
_IDS = [97, 98, 99]
_TEXTS = ["a", "b"]
_PARTS = [{"type": "text", "text": "hi"}]
_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_TALK = [
    {"role": "system", "content": _PARTS},
    {"role": "user", "content": _PARTS, "name": "n"},
    {"role": "assistant", "content": None, "tool_calls": [_CALL], "reasoning_content": "r"},
    {"role": "tool", "tool_call_id": "c1", "content": "1"},
]
_ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "content": []},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "1"},
]
_BLOCKS = [
    {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": _PARTS, "is_error": False}]},
]
_FORMAT = {"type": "json_schema", "name": "n", "schema": _SCHEMA, "strict": True}

EXAMPLES: dict[str, list[Any]] = {
    "/generate": [
        {"text": "ab", "sampling_params": {"max_new_tokens": 4, "temperature": 0.5, "top_p": 0.9, "top_k": 5}},
        {"input_ids": _IDS, "text": "cd", "sampling_params": {"max_new_tokens": 3, "n": 2, "stop": ["q", "z"]}},
        {"text": _TEXTS, "rid": ["fuzz-1", "fuzz-2"], "sampling_params": [{"max_new_tokens": 1}, {}], "priority": 3},
        {"text": "s", "stream": True, "sampling_params": {"max_new_tokens": 5, "stop_regex": "a[0-9]+"}},
        {"text": "g", "sampling_params": {"json_schema": _SCHEMA, "max_new_tokens": 8}, "stream": True},
        {"text": "g", "sampling_params": {"regex": "[a-c]{2,4}", "max_new_tokens": 8}},
        {"text": "g", "sampling_params": {"choices": _TEXTS, "logit_bias": {"97": -1.5}}},
        {
            "text": "l",
            "sampling_params": {"max_new_tokens": 2},
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": 2,
            "token_ids_logprob": _IDS,
        },
        {"input_embeds": [[0.1, 0.2, 0.3, 0.4]], "sampling_params": {"max_new_tokens": 1}},
    ],
    "/v1/chat/completions": [
        _CHAT,
        {**_CHAT, "stream": True, "stream_options": {"include_usage": True}, "n": 2},
        {**_CHAT, "tools": [_TOOL], "tool_choice": "auto", "logprobs": True, "top_logprobs": 1},
        {**_CHAT, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": _SCHEMA}}},
        {**_CHAT, "messages": _TALK, "tools": [_TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {
            **_CHAT,
            "tools": [_TOOL],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "f"}}]},
            },
        },
        {
            **_CHAT,
            "reasoning_effort": "low",
            "chat_template_kwargs": {"a": 1},
            "documents": [{"text": "d"}],
            "modalities": ["text"],
        },
        {**_CHAT, "structured_outputs": {"regex": "[a-z]+"}, "stop": "x", "seed": 1},
    ],
    "/v1/completions": [
        {"prompt": "ab", "max_tokens": 3, "echo": True, "logprobs": 1},
        {"prompt": [_IDS, _IDS], "max_tokens": 3, "stream": True},
        {"prompt": _TEXTS, "n": 2, "best_of": 3, "max_tokens": 2},
    ],
    "/v1/responses": [
        {"input": "hi", "max_output_tokens": 4, "store": False},
        {"input": [{"role": "user", "content": "hi"}], "max_output_tokens": 4, "stream": True, "store": False},
        {
            "input": _ITEMS,
            "max_output_tokens": 4,
            "tools": [{"type": "function", "name": "f", "parameters": _SCHEMA, "strict": False}],
            "tool_choice": {"type": "function", "name": "f"},
            "text": {"format": {"type": "text"}, "verbosity": "low"},
            "reasoning": {"effort": "low", "summary": "auto"},
            "include": ["message.output_text.logprobs"],
            "top_logprobs": 1,
            "metadata": {"a": "b"},
            "truncation": "auto",
            "instructions": "i",
            "background": False,
        },
        {"input": "hi", "max_output_tokens": 3, "text": {"format": _FORMAT}},
    ],
    "/v1/responses/input_tokens": [{"input": "hi"}],
    "/v1/messages": [
        {"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]},
        {"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}], "stream": True},
        {
            "model": "m",
            "max_tokens": 20,
            "messages": _BLOCKS,
            "system": _PARTS,
            "tools": [{"type": "custom", "name": "f", "description": "d", "input_schema": _SCHEMA}],
            "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
            "thinking": {"type": "enabled", "budget_tokens": 4, "display": "summarized"},
            "output_config": {"effort": "low"},
            "stop_sequences": ["q"],
            "metadata": {"user_id": "u"},
        },
    ],
    "/v1/messages/count_tokens": [{"model": "m", "messages": [{"role": "user", "content": "hi"}]}],
    "/role_affixes": [{"messages": [{"role": "user", "content": "hi"}], "role": "assistant"}],
    "/tokenize": [{"text": "ab", "add_special_tokens": True}, {"text": _TEXTS}],
    "/v1/tokenize": [{"prompt": "ab"}],
    "/detokenize": [{"tokens": _IDS}, {"tokens": [_IDS, _IDS], "skip_special_tokens": False}],
    "/v1/detokenize": [{"tokens": _IDS}],
    "/encode": [{"text": "a"}, {"input_ids": _IDS}],
    "/v1/embeddings": [{"input": _TEXTS, "encoding_format": "base64"}],
    "/classify": [{"input": "a"}],
    "/v1/classify": [{"input": "a"}],
    "/rerank": [{"query": "a", "documents": _TEXTS, "top_n": 1}],
    "/v1/rerank": [{"query": "a", "documents": [{"text": "a"}]}],
    "/score": [{"query": "a", "items": _TEXTS, "label_token_ids": _IDS, "apply_softmax": True}],
    "/v1/score": [{"text_1": "a", "text_2": _TEXTS}],
    "/abort_request": [{"rid": "fuzz-1"}],
    "/open_session": [{"capacity_of_str_len": 100, "session_id": "fuzz", "timeout": 5.0}],
    "/close_session": [{"session_id": "fuzz"}],
    "/flush_cache": [{"timeout": 0.01}],
    "/kv_events": [{"since": 0, "limit": 5}],
    "/pause_generation": [{"mode": "in_place"}],
    "/continue_generation": [{}],
    "/configure_logging": [{"log_requests": False, "log_requests_level": 1}],
    "/freeze_gc": [{}],
    "/start_profile": [{"num_steps": 2}],
    "/stop_profile": [{}],
    "/parse_function_call": [{"text": '<tool_call>{"name": "f"}</tool_call>', "tool_call_parser": "hermes"}],
    "/separate_reasoning": [{"text": "<think>a</think>b", "reasoning_parser": "qwen3"}],
    "/validate_grammar": [{"regex": "[a-z]+"}, {"json_schema": _SCHEMA}],
    "/request_history": [{"limit": 2}],
    "/inspect_request": [{"rid": "fuzz-1"}],
}
