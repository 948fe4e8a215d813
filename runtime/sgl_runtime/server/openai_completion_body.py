"""The body of /v1/completions, checked and turned into native requests."""

from dataclasses import dataclass
from typing import Any

from msgspec import structs

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import MAX_SAMPLES, reject
from sgl_runtime.server.field_checks import checked_boolean, checked_integer
from sgl_runtime.server.generate_request import GenerateRequest, parse_generate
from sgl_runtime.server.openai_fields import (
    COMMON,
    StreamUsage,
    checked_body,
    checked_num_top,
    native_options,
    native_sampling,
    read_constraint,
    read_stream_usage,
)
from sgl_runtime.server.openai_names import openai_names

DEFAULT_TOKENS = 16

COMPLETION_FIELDS = (*COMMON, "prompt", "echo", "best_of", "suffix")


@dataclass(frozen=True, kw_only=True)
class OpenAICompletionBody:
    """A checked body.

    Attributes:
        requests: One native request for each output that is drawn.
        stream: Whether the reply is a stream.
        logprobs: Whether log probabilities are wanted.
        num_top_logprobs: How many of the likeliest tokens are wanted at each place.
        echo: Whether the reply begins with the prompt.
        num_shown: Choices of each prompt.
        num_drawn: Outputs that are drawn for each prompt; the likeliest of them are shown.
        usage: When a stream tells token counts.
        constraint_field: The field that constrains the output; None where none does.
    """

    requests: list[GenerateRequest]
    stream: bool
    logprobs: bool
    num_top_logprobs: int
    echo: bool
    num_shown: int
    num_drawn: int
    usage: StreamUsage
    constraint_field: str | None


def parse_completion(payload: Any, *, most: int | None = None) -> OpenAICompletionBody:
    """Check a body of /v1/completions.

    Args:
        payload: The body.
        most: How many outputs it may ask for; None for any number.

    Raises:
        InvalidRequestError: the first thing that is wrong, by the name it has in this body.
    """
    fields = checked_body(payload, COMPLETION_FIELDS, {})
    if fields.get("suffix", "") != "":
        raise InvalidRequestError("suffix is not supported; the served model goes on with a text", param="suffix")
    prompt = fields.get("prompt")
    if not isinstance(prompt, str | list) or prompt == []:
        raise reject("prompt", prompt, "a string, a list of strings, a list of token ids or a list of such lists")
    of_ids = isinstance(prompt, list) and not isinstance(prompt[0], str)
    stream = checked_boolean("stream", fields.get("stream", False))
    echo = checked_boolean("echo", fields.get("echo", False))
    num_top_logprobs = fields.get("logprobs")
    logprobs = num_top_logprobs is not None
    num_top_logprobs = checked_num_top("logprobs", num_top_logprobs) if logprobs else 0
    num_shown = checked_integer("n", fields.get("n", 1), low=1, high=MAX_SAMPLES)
    num_drawn = checked_integer("best_of", fields.get("best_of", num_shown), low=num_shown, high=MAX_SAMPLES)
    if num_drawn > num_shown and (stream or echo):
        raise reject("best_of", num_drawn, f"{num_shown}, as n, where the reply is a stream or echoes the prompt")
    constraint = read_constraint(fields)
    sampling = {
        **native_sampling(fields),
        **constraint.sampling,
        "n": num_drawn,
        "max_new_tokens": fields.get("max_tokens", DEFAULT_TOKENS),
    }
    body: dict[str, Any] = {
        "input_ids" if of_ids else "text": prompt,
        **native_options(fields),
        "return_logprob": logprobs or num_drawn > num_shown,
        "top_logprobs_num": num_top_logprobs,
        "sampling_params": sampling,
    }
    if echo and logprobs:
        body["logprob_start_len"] = 0
    with openai_names(prompt="prompt", constraint=constraint.field):
        requests = parse_generate(body, most=most).requests
    return OpenAICompletionBody(
        requests=[structs.replace(request, must_fit="max_tokens" in fields) for request in requests],
        stream=stream,
        logprobs=logprobs,
        num_top_logprobs=num_top_logprobs,
        echo=echo,
        num_shown=num_shown,
        num_drawn=num_drawn,
        usage=read_stream_usage(fields.get("stream_options"), stream=stream),
        constraint_field=constraint.field,
    )
