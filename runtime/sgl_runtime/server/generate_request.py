"""GenerateRequest: the body of `/generate`, checked (docs/protocol.md)."""

import os
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from sgl_runtime.errors import InvalidRequestError, OverloadedError
from sgl_runtime.ipc.request_parts import FloatRows, LogitProcessorCall, SessionTurn
from sgl_runtime.sampling_params import SamplingParams, reject
from sgl_runtime.server.field_checks import (
    checked_boolean,
    checked_fields,
    checked_id,
    checked_text,
    is_int,
    kind_of,
    token_ids,
)
from sgl_runtime.server.input_embeds import checked_embeds, is_embeds_list
from sgl_runtime.server.request_options import OPTIONS

_TEXT_SETTINGS = ("stop", "stop_regex", "choices", "regex", "json_schema", "ebnf", "structural_tag")
_FLAGS = ("return_text_in_logprobs", "return_text_ids")

FIELDS = (
    "text",
    "input_ids",
    "input_embeds",
    "sampling_params",
    "rid",
    "stream",
    *_FLAGS,
    *OPTIONS,
    "lora_path",
)


@dataclass(frozen=True, kw_only=True)
class PoolingWish:
    """That a vector is wanted in place of an output.

    Attributes:
        field: Name of the body's field that holds the text or the ids, for errors.
        pair: Second text, which the model reads behind the first; None for one text.
        max_length: Cut the text to so many tokens; None to refuse one that is too long.
    """

    field: str
    pair: str | None = None
    max_length: int | None = None


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One output that is wanted for one prompt.

    Attributes:
        rid: Request id, different for each output.
        client_rid: The id by which the client knows it: that of all outputs of the prompt.
        sample: Which output of the prompt it is, from 0 on.
        text: Text that follows `input_ids`; None without one.
        input_ids: Prompt as ids; None without any.
        input_embeds: Prompt as embeddings, in place of text and ids; None without any.
        pooling: What else a vector needs that is wanted in place of an output; None where an output is.
        sampling: Checked settings, for one output.
        return_logprob: Whether log probabilities are wanted.
        logprob_start_len: First prompt position whose log probability is wanted; -1 for none.
        top_logprobs_num: How many of the likeliest tokens are wanted wherever a log probability is.
        token_ids_logprob: Ids whose log probabilities are wanted there besides.
        return_text_in_logprobs: Whether their triples hold text.
        return_text_ids: Whether the ids of `text` are wanted.
        extra_key: Requests of different extra keys share no cached prefix.
        return_hidden_states: Whether the last hidden states of prompt and output are wanted.
        session_params: The session that it goes on in; None for none.
        custom_logit_processor: What changes its logits besides the settings; None for nothing.
        priority: Larger ones run first among those that wait.
        must_fit: Whether a limit on the output past what the context has room for is an error, and not lowered.
        in_list: Whether the reply is one of a list.
        path: Prefix of field names in errors: empty, or `[i].` in a batch.
    """

    rid: str
    client_rid: str
    sample: int = 0
    text: str | None
    input_ids: list[int] | None
    input_embeds: FloatRows | None = None
    pooling: PoolingWish | None = None
    sampling: SamplingParams
    return_logprob: bool = False
    logprob_start_len: int = -1
    top_logprobs_num: int = 0
    token_ids_logprob: tuple[int, ...] = ()
    return_text_in_logprobs: bool = False
    return_text_ids: bool = False
    extra_key: str | None = None
    return_hidden_states: bool = False
    session_params: SessionTurn | None = None
    custom_logit_processor: LogitProcessorCall | None = None
    priority: int = 0
    must_fit: bool = False
    in_list: bool = False
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class GenerateBody:
    """A parsed body.

    Attributes:
        requests: One for each output; the outputs of a prompt stand together.
        is_batch: Whether the reply is a list.
        stream: Whether the reply is a stream.
    """

    requests: list[GenerateRequest]
    is_batch: bool
    stream: bool


def parse_generate(payload: Any, *, most: int | None = None) -> GenerateBody:
    """Check a body of `/generate`.

    Args:
        payload: The body.
        most: How many outputs it may ask for; None for any number.

    Raises:
        InvalidRequestError: the first thing that is wrong, with the field's path.
        OverloadedError: it asks for more than `most` outputs.
    """
    fields = checked_fields(payload, FIELDS)
    stream = checked_boolean("stream", fields.get("stream", False))
    flags = {name: checked_boolean(name, fields[name]) for name in _FLAGS if name in fields}
    if "lora_path" in fields:
        raise reject("lora_path", fields["lora_path"], "left out: the served model has no adapters")
    text, input_ids, embeds = fields.get("text"), fields.get("input_ids"), fields.get("input_embeds")
    if text is None and input_ids is None and embeds is None:
        raise InvalidRequestError(
            "the request has neither text nor input_ids; give one or both, or input_embeds", param="text"
        )
    num_prompts = _num_prompts(text, input_ids, embeds)
    check_number(num_prompts or 1, most)
    if num_prompts is None:
        options = {name: check(name, fields[name]) for name, check in OPTIONS.items() if name in fields}
        prompt = _prompt("", text, input_ids, embeds, fields.get("sampling_params"), fields.get("rid"))
        prompts = [{**prompt, **options}]
    else:
        columns = [
            _column("text", text, num_prompts),
            _column("input_ids", input_ids, num_prompts),
            _column("input_embeds", embeds, num_prompts),
            _sampling_column(fields.get("sampling_params"), num_prompts),
            _column("rid", fields.get("rid"), num_prompts),
        ]
        prompts = [_prompt(f"[{index}].", *row) for index, row in enumerate(zip(*columns, strict=True))]
        for name in OPTIONS:
            for prompt, value in zip(prompts, _option_column(name, fields.get(name), num_prompts), strict=True):
                prompt[name] = value
    check_number(sum(prompt["sampling"].n for prompt in prompts), most)
    is_batch = num_prompts is not None or prompts[0]["sampling"].n > 1
    requests = [request for prompt in prompts for request in _samples({**prompt, **flags, "in_list": is_batch})]
    _check_logprob_options(requests)
    _check_embeds(requests)
    _check_sessions(requests)
    _check_distinct(requests)
    return GenerateBody(requests=requests, is_batch=is_batch, stream=stream)


def check_number(count: int, most: int | None) -> None:
    """Hold the outputs or vectors of one call to what the server takes at all, before anything is made for them.

    Raises:
        OverloadedError: there are more.
    """
    if most is not None and count > most:
        raise OverloadedError(
            f"the call asks for {count} outputs; the server takes {most} requests at a time (--max-running-requests"
            " and --max-queued-requests together)"
        )


def new_rid() -> str:
    """A fresh request id."""
    return os.urandom(16).hex()


def _num_prompts(text: Any, input_ids: Any, embeds: Any) -> int | None:
    """How many prompts a batch has; None for a single prompt."""
    for name, value, is_batch in (
        ("text", text, isinstance(text, list)),
        ("input_ids", input_ids, isinstance(input_ids, list) and input_ids and isinstance(input_ids[0], list)),
        ("input_embeds", embeds, is_embeds_list(embeds)),
    ):
        if is_batch and not value:
            raise InvalidRequestError(f"{name} is an empty list; it must hold at least one prompt", param=name)
        if is_batch:
            return len(value)
    return None


def _column(name: str, value: Any, num_prompts: int) -> list[Any]:
    if value is None:
        return [None] * num_prompts
    if not isinstance(value, list) or len(value) != num_prompts:
        found = f"a list of {len(value)}" if isinstance(value, list) else kind_of(value)
        raise InvalidRequestError(
            f"{name} is {found}; it must be a list of {num_prompts}, one for each prompt", param=name
        )
    return value


def _option_column(name: str, value: Any, num_prompts: int) -> list[Any]:
    """Values of an option that a batch may give once for all prompts, or in a list with one for each."""
    check = OPTIONS[name]
    # A list of ids is one value; a list of such lists has one for each prompt.
    is_column = isinstance(value, list) and (name != "token_ids_logprob" or any(not is_int(item) for item in value))
    if not is_column:
        return [check(name, value)] * num_prompts
    return [check(f"[{index}].{name}", item) for index, item in enumerate(_column(name, value, num_prompts))]


def _samples(prompt: dict[str, Any]) -> list[GenerateRequest]:
    """The requests of a prompt, one for each output; the first has the client's rid, the others rids made of it."""
    rid, samples, processor = prompt["client_rid"], prompt["sampling"].samples(), prompt.get("custom_logit_processor")
    custom_params = prompt["sampling"].custom_params
    if processor is not None and custom_params is not None:
        prompt = {**prompt, "custom_logit_processor": replace(processor, params=custom_params)}
    return [
        GenerateRequest(**{**prompt, "sampling": sampling}, rid=f"{rid}-{index}" if index else rid, sample=index)
        for index, sampling in enumerate(samples)
    ]


def _sampling_column(value: Any, num_prompts: int) -> list[Any]:
    return _column("sampling_params", value, num_prompts) if isinstance(value, list) else [value] * num_prompts


def _prompt(path: str, text: Any, input_ids: Any, embeds: Any, sampling: Any, rid: Any) -> dict[str, Any]:
    if embeds is not None and not (text is None and input_ids is None):
        raise InvalidRequestError(
            f"{path}input_embeds stands beside text or input_ids; it is the whole prompt, give it alone",
            param=f"{path}input_embeds",
        )
    if text is None and input_ids is None and embeds is None:
        raise InvalidRequestError(f"{path}text is null; give text, input_ids or both", param=f"{path}text")
    return {
        "path": path,
        "text": None if text is None else checked_text(f"{path}text", text),
        "input_ids": None if input_ids is None else token_ids(f"{path}input_ids", input_ids),
        "input_embeds": None if embeds is None else checked_embeds(f"{path}input_embeds", embeds),
        "sampling": _sampling(f"{path}sampling_params", sampling),
        "client_rid": new_rid() if rid is None else checked_id(f"{path}rid", rid),
    }


def _sampling(path: str, value: Any) -> SamplingParams:
    sampling = SamplingParams.from_dict(value, path=path)
    if value is None or value.keys().isdisjoint(_TEXT_SETTINGS):
        return sampling
    for name, texts in (
        ("stop", sampling.stop),
        ("stop_regex", sampling.stop_regex),
        ("choices", sampling.choices or ()),
        ("regex", (sampling.regex or "",)),
        ("json_schema", (sampling.json_schema or "",)),
        ("ebnf", (sampling.ebnf or "",)),
        ("structural_tag", (sampling.structural_tag or "",)),
    ):
        for text in texts:
            checked_text(f"{path}.{name}", text)
    return sampling


def _check_logprob_options(requests: list[GenerateRequest]) -> None:
    for request in requests:
        for name, value in (
            ("top_logprobs_num", request.top_logprobs_num),
            ("token_ids_logprob", list(request.token_ids_logprob)),
        ):
            if value and not request.return_logprob:
                raise reject(f"{request.path}{name}", value, "left out where return_logprob is false")


def _check_embeds(requests: list[GenerateRequest]) -> None:
    for request in requests:
        if request.input_embeds is None:
            continue
        if request.return_logprob and request.logprob_start_len >= 0:
            path = f"{request.path}logprob_start_len"
            raise reject(path, request.logprob_start_len, "-1 with input_embeds: positions without ids have none")
        if request.session_params is not None:
            path = f"{request.path}session_params"
            raise InvalidRequestError(f"{path} stands beside input_embeds; a session keeps token ids", param=path)


def _check_sessions(requests: list[GenerateRequest]) -> None:
    for request in requests:
        if request.sample and request.session_params is not None:
            path = f"{request.path}sampling_params.n"
            raise InvalidRequestError(f"{path} is above 1; a turn of a session has one output", param=path)


def _check_distinct(requests: list[GenerateRequest]) -> None:
    seen: set[str] = set()
    for request in requests:
        if request.rid in seen:
            raise InvalidRequestError(f"rid {request.rid!r} stands twice in this batch", param=f"{request.path}rid")
        seen.add(request.rid)
