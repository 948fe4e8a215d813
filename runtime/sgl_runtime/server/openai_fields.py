"""Fields that the bodies of the OpenAI paths share."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import GRAMMAR_KINDS, reject
from sgl_runtime.server.field_checks import checked_boolean, checked_fields, is_int

# Field of a body -> field of native sampling_params.
SAMPLING = {
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
    "custom_params": "custom_params",
    "json_schema_lenient": "json_schema_lenient",
}
# Constraints by the names that they have natively.
_CONSTRAINTS = ("regex", "choices", "ebnf", "structural_tag")
# Field of a body -> field of a native one.
NATIVE = {
    "rid": "rid",
    "priority": "priority",
    "cache_salt": "extra_key",
    "custom_logit_processor": "custom_logit_processor",
    "session_params": "session_params",
    "lora_path": "lora_path",
}
# What a client may say to a service, and what a server of one model has no use for.
WITHOUT_EFFECT = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
)
COMMON = (
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "logprobs",
    "response_format",
    "structured_outputs",
    *_CONSTRAINTS,
    *NATIVE,
    *SAMPLING,
    *WITHOUT_EFFECT,
)
MAX_TOP_LOGPROBS = 20

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

_REFUSED = {
    "guided_json": "give structured_outputs.json instead",
    "guided_regex": "give structured_outputs.regex instead",
    "guided_choice": "give structured_outputs.choice instead",
    "guided_grammar": "give structured_outputs.grammar instead",
    "json_schema": "give response_format instead",
}
# Field of structured_outputs -> native constraint.
_STRUCTURED = {
    "json": "json_schema",
    "json_object": "json_schema",
    "regex": "regex",
    "choice": "choices",
    "grammar": "ebnf",
    "structural_tag": "structural_tag",
}


@dataclass(frozen=True)
class Constraint:
    """What constrains the output.

    Attributes:
        sampling: As native `sampling_params`; empty for nothing.
        field: The body's field that it came from; None for nothing.
    """

    sampling: dict[str, Any]
    field: str | None


@dataclass(frozen=True)
class StreamUsage:
    """When a stream tells token counts: with a last chunk, and with every chunk besides."""

    at_end: bool = False
    in_chunks: bool = False


def checked_body(payload: Any, known: Sequence[str], refused: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a body that are not null.

    Args:
        payload: The body.
        known: Fields that it may have.
        refused: Fields that are known and not supported, each with what to do instead.

    Raises:
        InvalidRequestError: it is no object, or has another field.
    """
    if isinstance(payload, dict):
        for name, value in payload.items():
            if name in known or (value is None and (name in refused or name in _REFUSED)):
                continue
            reason = refused.get(name) or _REFUSED.get(name)
            if reason is not None:
                raise InvalidRequestError(f"{name} is not supported; {reason}", param=name)
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(known)}"
            raise InvalidRequestError(f"{name[:80]} is not a known field; {hint}", param=name[:80])
    return checked_fields(payload, (*known, *refused, *_REFUSED))


def native_sampling(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The native `sampling_params`, without the constraint and the limit."""
    return {native: fields[name] for name, native in SAMPLING.items() if name in fields}


def native_options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Other fields of a native body."""
    return {native: fields[name] for name, native in NATIVE.items() if name in fields}


def read_constraint(fields: Mapping[str, Any]) -> Constraint:
    """What constrains the output.

    Raises:
        InvalidRequestError: it is malformed, or there are two.
    """
    found = [Constraint({name: fields[name]}, name) for name in _CONSTRAINTS if name in fields]
    others = (_structured_outputs(fields.get("structured_outputs")), _format(fields.get("response_format")))
    found.extend(read for read in others if read.field is not None)
    if len(found) > 1:
        first, second = found[0].field, found[-1].field
        raise InvalidRequestError(
            f"{first} and {str(second).split('.')[0]} both constrain the output; give one", param=first
        )
    return found[0] if found else Constraint({}, None)


def effort_variables(path: str, effort: Any) -> dict[str, Any]:
    """Variables of the chat template that say how much the model shall think.

    Args:
        path: The body's field.
        effort: Its value; None where it is left out.

    Raises:
        InvalidRequestError: it is none of the words for it.
    """
    if effort is None:
        return {}
    if effort not in EFFORTS:
        raise reject(path, effort, f"one of {', '.join(EFFORTS)}")
    return {"reasoning_effort": effort, **(thinking_variables(wanted=False) if effort == "none" else {})}


def checked_variables(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Further variables of the chat template, that a body gives by name.

    Raises:
        InvalidRequestError: they are no object.
    """
    given = fields.get("chat_template_kwargs", {})
    if not isinstance(given, dict):
        raise reject("chat_template_kwargs", given, "an object")
    return given


def thinking_variables(*, wanted: bool) -> dict[str, Any]:
    """Variables by which templates turn thinking on and off."""
    return {"enable_thinking": wanted, "thinking": wanted}


def read_stream_usage(stream_options: Any, *, stream: bool) -> StreamUsage:
    """What `stream_options` asks for.

    Raises:
        InvalidRequestError: it is malformed, or the reply is no stream.
    """
    if stream_options is None:
        return StreamUsage()
    if not isinstance(stream_options, dict) or not stream:
        raise reject("stream_options", stream_options, "an object, and only given when stream is true")
    known = ("include_usage", "continuous_usage_stats", "include_obfuscation")
    fields = checked_fields(stream_options, known, path="stream_options")
    flags = {name: checked_boolean(f"stream_options.{name}", value) for name, value in fields.items()}
    in_chunks = flags.get("continuous_usage_stats", False)
    return StreamUsage(flags.get("include_usage", False) or in_chunks, in_chunks)


def checked_num_top(name: str, value: Any) -> int:
    """How many of the likeliest tokens are wanted.

    Raises:
        InvalidRequestError: it is no such number.
    """
    if not is_int(value) or not 0 <= value <= MAX_TOP_LOGPROBS:
        raise reject(name, value, f"an integer from 0 to {MAX_TOP_LOGPROBS}")
    return int(value)


def _format(response_format: Any) -> Constraint:
    if response_format is None:
        return Constraint({}, None)
    if not isinstance(response_format, dict):
        raise reject("response_format", response_format, "an object")
    match response_format.get("type"):
        case "text":
            return Constraint({}, None)
        case "json_object":
            return Constraint({"json_schema": {"type": "object"}}, "response_format")
        case "json_schema":
            return Constraint({"json_schema": _schema(response_format)}, "response_format.json_schema.schema")
        case "structural_tag":
            return Constraint({"structural_tag": response_format}, "response_format")
        case kind:
            raise reject("response_format.type", kind, '"text", "json_object", "json_schema" or "structural_tag"')


def _schema(response_format: dict[str, Any]) -> Any:
    path = "response_format.json_schema"
    definition = response_format.get("json_schema")
    if not isinstance(definition, dict) or definition.get("schema") is None:
        raise reject(path, definition, "an object with a schema")
    fields = checked_fields(definition, ("name", "description", "schema", "strict"), path=path)
    for name in ("name", "description"):
        if not isinstance(fields.get(name, ""), str):
            raise reject(f"{path}.{name}", fields[name], "a string")
    checked_boolean(f"{path}.strict", fields.get("strict", False))
    return fields["schema"]


def _structured_outputs(value: Any) -> Constraint:
    if value is None:
        return Constraint({}, None)
    path = "structured_outputs"
    fields = checked_fields(value, tuple(_STRUCTURED), path=path)
    if checked_boolean(f"{path}.json_object", fields.pop("json_object", False)):
        fields["json_object"] = {"type": "object"}
    if len(fields) != 1:
        allowed = f"an object with one of {', '.join(_STRUCTURED)}"
        raise reject(path, value, allowed)
    name, content = next(iter(fields.items()))
    assert _STRUCTURED[name] in GRAMMAR_KINDS
    return Constraint({_STRUCTURED[name]: content}, f"{path}.{name}")
