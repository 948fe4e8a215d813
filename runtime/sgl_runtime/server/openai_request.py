"""The bodies of /v1/completions and /v1/chat/completions, checked and turned into native ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import GRAMMAR_KINDS, reject
from sgl_runtime.server.field_checks import checked_boolean, checked_fields, is_int
from sgl_runtime.server.generate_request import GenerateRequest, parse_generate
from sgl_runtime.server.message_checks import checked_messages

DEFAULT_COMPLETION_TOKENS = 16

# Field of a body -> field of native sampling_params.
_SAMPLING = {
    "n": "n",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "seed": "sampling_seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "repetition_penalty": "repetition_penalty",
    "min_tokens": "min_new_tokens",
    "logit_bias": "logit_bias",
    "stop": "stop",
    "stop_regex": "stop_regex",
    "stop_token_ids": "stop_token_ids",
    "ignore_eos": "ignore_eos",
    "no_stop_trim": "no_stop_trim",
    "skip_special_tokens": "skip_special_tokens",
    "regex": "regex",
    "choices": "choices",
    "ebnf": "ebnf",
    "structural_tag": "structural_tag",
    "custom_params": "custom_params",
    "json_schema_lenient": "json_schema_lenient",
}
# Field of a body -> field of a native one.
_NATIVE = {
    "rid": "rid",
    "stream": "stream",
    "priority": "priority",
    "cache_salt": "extra_key",
    "custom_logit_processor": "custom_logit_processor",
    "session_params": "session_params",
    "lora_path": "lora_path",
}
# Fields whose one accepted value changes nothing.
_COMPLETION_NEUTRAL: dict[str, Any] = {"best_of": 1, "suffix": ""}
_COMMON = ("model", "user", "stream_options", "max_tokens", "logprobs", "response_format", *_NATIVE, *_SAMPLING)
_COMPLETION_FIELDS = (*_COMMON, "prompt", "echo", *_COMPLETION_NEUTRAL)
_CHAT_FIELDS = (*_COMMON, "messages", "max_completion_tokens", "top_logprobs")
MAX_TOP_LOGPROBS = 20

_NATIVE_NAMES = (
    ("sampling_params.max_new_tokens", "max_tokens"),
    ("sampling_params.sampling_seed", "seed"),
    ("sampling_params.min_new_tokens", "min_tokens"),
    ("sampling_params.json_schema_lenient", "json_schema_lenient"),
    ("sampling_params.json_schema", "response_format.json_schema.schema"),
    ("sampling_params.", ""),
    ("extra_key", "cache_salt"),
)


@dataclass(frozen=True, kw_only=True)
class OpenAIRequest:
    """A checked body.

    Attributes:
        requests: One native request for each choice of the reply.
        stream: Whether the reply is a stream.
        include_usage: Whether the stream ends with token counts.
        logprobs: Whether log probabilities are wanted.
        num_top_logprobs: How many of the likeliest tokens are wanted at each place.
        echo: Whether the reply begins with the prompt.
    """

    requests: list[GenerateRequest]
    stream: bool
    include_usage: bool
    logprobs: bool
    num_top_logprobs: int
    echo: bool = False


def parse_completion(payload: Any) -> OpenAIRequest:
    """Check a body of /v1/completions.

    Raises:
        InvalidRequestError: the first thing that is wrong, by the name it has in this body.
    """
    fields = checked_fields(payload, _COMPLETION_FIELDS)
    _check_neutral(fields, _COMPLETION_NEUTRAL)
    prompt = fields.get("prompt")
    if not isinstance(prompt, str | list) or prompt == []:
        raise reject("prompt", prompt, "a string, a list of strings, a list of token ids or a list of such lists")
    of_ids = isinstance(prompt, list) and not isinstance(prompt[0], str)
    echo = checked_boolean("echo", fields.get("echo", False))
    num_top_logprobs = fields.get("logprobs")
    if num_top_logprobs is not None:
        _check_num_top("logprobs", num_top_logprobs)
    with openai_names(prompt="prompt"):
        return _parse(
            fields,
            {"input_ids" if of_ids else "text": prompt},
            max_tokens=fields.get("max_tokens", DEFAULT_COMPLETION_TOKENS),
            logprobs=num_top_logprobs is not None,
            num_top_logprobs=num_top_logprobs or 0,
            echo=echo,
        )


def parse_chat(payload: Any) -> tuple[OpenAIRequest, list[dict[str, Any]]]:
    """Check a body of /v1/chat/completions.

    Returns:
        The request, whose prompt is still empty, and the messages that become its prompt.

    Raises:
        InvalidRequestError: the first thing that is wrong, by the name it has in this body.
    """
    fields = checked_fields(payload, _CHAT_FIELDS)
    messages = checked_messages(fields.get("messages"))
    logprobs = fields.get("logprobs", False)
    if not isinstance(logprobs, bool):
        raise reject("logprobs", logprobs, "true or false")
    num_top_logprobs = fields.get("top_logprobs", 0)
    _check_num_top("top_logprobs", num_top_logprobs)
    if num_top_logprobs and not logprobs:
        raise reject("top_logprobs", num_top_logprobs, "0 unless logprobs is true")
    with openai_names(prompt="messages"):
        request = _parse(
            fields,
            {"input_ids": []},
            max_tokens=fields.get("max_completion_tokens", fields.get("max_tokens")),
            logprobs=logprobs,
            num_top_logprobs=num_top_logprobs,
        )
    return request, messages


@contextmanager
def openai_names(*, prompt: str) -> Iterator[None]:
    """Name fields in errors as the body names them.

    Args:
        prompt: The body's field that holds the prompt.
    """
    try:
        yield
    except InvalidRequestError as error:
        if error.param is None:
            raise
        param = error.param.replace("input_ids", prompt)
        param = f"{param.removesuffix('text')}{prompt}" if param.endswith("text") else param
        for native, name in _NATIVE_NAMES:
            param = param.replace(native, name)
        message = error.message
        if message.startswith(error.param):
            message = param + message.removeprefix(error.param)
        raise type(error)(message, param=param) from error


def _parse(
    fields: dict[str, Any],
    prompt: dict[str, Any],
    *,
    max_tokens: Any,
    logprobs: bool,
    num_top_logprobs: int,
    echo: bool = False,
) -> OpenAIRequest:
    sampling = {native: fields[name] for name, native in _SAMPLING.items() if name in fields}
    sampling["max_new_tokens"] = max_tokens
    schema = _schema(fields.get("response_format"))
    if schema is not None:
        constraint = next((name for name in GRAMMAR_KINDS if name in fields), None)
        if constraint is not None:
            raise InvalidRequestError(
                f"{constraint} and response_format both constrain the output; give one", param=constraint
            )
        sampling["json_schema"] = schema
    native = {native: fields[name] for name, native in _NATIVE.items() if name in fields}
    wanted: dict[str, Any] = {"return_logprob": logprobs, "top_logprobs_num": num_top_logprobs}
    if echo and logprobs:
        wanted["logprob_start_len"] = 0
    body = parse_generate({**prompt, **native, **wanted, "sampling_params": sampling})
    return OpenAIRequest(
        requests=body.requests,
        stream=body.stream,
        include_usage=_include_usage(fields.get("stream_options"), body.stream),
        logprobs=logprobs,
        num_top_logprobs=num_top_logprobs,
        echo=echo,
    )


def _check_neutral(fields: dict[str, Any], neutral: dict[str, Any]) -> None:
    for name, only in neutral.items():
        value = fields.get(name, only)
        if value != only or isinstance(value, bool) != isinstance(only, bool):
            raise reject(name, value, f"{only!r}: nothing else is supported")


def _check_num_top(name: str, value: Any) -> None:
    if not is_int(value) or not 0 <= value <= MAX_TOP_LOGPROBS:
        raise reject(name, value, f"an integer from 0 to {MAX_TOP_LOGPROBS}")


def _schema(response_format: Any) -> Any:
    """The JSON Schema of a `response_format`; None where it asks for plain text."""
    if response_format is None:
        return None
    if not isinstance(response_format, dict):
        raise reject("response_format", response_format, "an object")
    kind = response_format.get("type")
    if kind == "text":
        return None
    if kind != "json_schema":
        raise reject("response_format.type", kind, '"text" or "json_schema"')
    definition = response_format.get("json_schema")
    if not isinstance(definition, dict) or definition.get("schema") is None:
        raise reject("response_format.json_schema", definition, "an object with a schema")
    return definition["schema"]


def _include_usage(stream_options: Any, stream: bool) -> bool:
    if stream_options is None:
        return False
    if not isinstance(stream_options, dict) or not stream:
        raise reject("stream_options", stream_options, "an object, and only given when stream is true")
    for name in stream_options:
        if name != "include_usage":
            raise InvalidRequestError(f"stream_options.{name} is not a known field", param=f"stream_options.{name}")
    include = stream_options.get("include_usage") or False
    if not isinstance(include, bool):
        raise reject("stream_options.include_usage", include, "true or false")
    return include
