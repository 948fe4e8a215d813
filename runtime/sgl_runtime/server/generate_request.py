"""GenerateRequest: the body of `/generate`, checked (docs/protocol.md)."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import SamplingParams, reject

FIELDS = (
    "text",
    "input_ids",
    "sampling_params",
    "rid",
    "stream",
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "token_ids_logprob",
    "return_text_in_logprobs",
    "return_text_ids",
    "priority",
    "lora_path",
)
MAX_TOP_LOGPROBS = 100
MAX_PROBE_IDS = 1000
MAX_PRIORITY = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class GenerateRequest:
    """One output that is wanted for one prompt.

    Attributes:
        rid: Request id, different for each output.
        client_rid: The id by which the client knows it: that of all outputs of the prompt.
        sample: Which output of the prompt it is, from 0 on.
        text: Text that follows `input_ids`; None without one.
        input_ids: Prompt as ids; None without any.
        sampling: Checked settings, for one output.
        return_logprob: Whether log probabilities are wanted.
        logprob_start_len: First prompt position whose log probability is wanted; -1 for none.
        top_logprobs_num: How many of the likeliest tokens are wanted wherever a log probability is.
        token_ids_logprob: Ids whose log probabilities are wanted there besides.
        return_text_in_logprobs: Whether their triples hold text.
        return_text_ids: Whether the ids of `text` are wanted.
        priority: Larger ones run first among those that wait.
        in_list: Whether the reply is one of a list.
        path: Prefix of field names in errors: empty, or `[i].` in a batch.
    """

    rid: str
    client_rid: str
    sample: int = 0
    text: str | None
    input_ids: list[int] | None
    sampling: SamplingParams
    return_logprob: bool = False
    logprob_start_len: int = -1
    top_logprobs_num: int = 0
    token_ids_logprob: tuple[int, ...] = ()
    return_text_in_logprobs: bool = False
    return_text_ids: bool = False
    priority: int = 0
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


def parse_generate(payload: Any) -> GenerateBody:
    """Check a body of `/generate`.

    Raises:
        InvalidRequestError: the first thing that is wrong, with the field's path.
    """
    fields = checked_fields(payload, FIELDS)
    stream = _boolean("stream", fields.get("stream", False))
    flags = {name: _boolean(name, fields.get(name, False)) for name in ("return_text_in_logprobs", "return_text_ids")}
    if "lora_path" in fields:
        raise reject("lora_path", fields["lora_path"], "left out: the served model has no adapters")
    text, input_ids = fields.get("text"), fields.get("input_ids")
    if text is None and input_ids is None:
        raise InvalidRequestError("the request has neither text nor input_ids; give one or both", param="text")
    num_prompts = _num_prompts(text, input_ids)
    if num_prompts is None:
        options = {name: check(name, fields.get(name)) for name, check in _PER_PROMPT.items()}
        prompts = [{**_prompt("", text, input_ids, fields.get("sampling_params"), fields.get("rid")), **options}]
    else:
        columns = [
            _column("text", text, num_prompts),
            _column("input_ids", input_ids, num_prompts),
            _sampling_column(fields.get("sampling_params"), num_prompts),
            _column("rid", fields.get("rid"), num_prompts),
        ]
        prompts = [_prompt(f"[{index}].", *row) for index, row in enumerate(zip(*columns, strict=True))]
        for name in _PER_PROMPT:
            for prompt, value in zip(prompts, _option_column(name, fields.get(name), num_prompts), strict=True):
                prompt[name] = value
    is_batch = num_prompts is not None or prompts[0]["sampling"].n > 1
    requests = [request for prompt in prompts for request in _samples({**prompt, **flags, "in_list": is_batch})]
    _check_logprob_options(requests)
    _check_distinct(requests)
    return GenerateBody(requests=requests, is_batch=is_batch, stream=stream)


def checked_fields(payload: Any, known: Sequence[str]) -> dict[str, Any]:
    """The fields of a JSON object that are not null.

    Raises:
        InvalidRequestError: it is no object, or has a field that is not in `known`.
    """
    if not isinstance(payload, dict):
        raise InvalidRequestError(f"the body is {_kind(payload)}; it must be an object")
    for name in payload:
        if name not in known:
            raise InvalidRequestError(f"{name} is not a known field; known: {', '.join(known)}", param=str(name))
    return {name: value for name, value in payload.items() if value is not None}


def is_int(value: Any) -> bool:
    """Whether this is a JSON integer (a boolean is none)."""
    return isinstance(value, int) and not isinstance(value, bool)


def checked_text(path: str, value: Any) -> str:
    """A string that can be written as UTF-8.

    Raises:
        InvalidRequestError: it is no string, or holds half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise reject(path, value, "a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{path} holds half of a surrogate pair at character {error.start}; it must be valid Unicode", param=path
        ) from error
    return value


def new_rid() -> str:
    """A fresh request id."""
    return uuid.uuid4().hex


def _num_prompts(text: Any, input_ids: Any) -> int | None:
    """How many prompts a batch has; None for a single prompt."""
    for name, value, is_batch in (
        ("text", text, isinstance(text, list)),
        ("input_ids", input_ids, isinstance(input_ids, list) and input_ids and isinstance(input_ids[0], list)),
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
        found = f"a list of {len(value)}" if isinstance(value, list) else _kind(value)
        raise InvalidRequestError(
            f"{name} is {found}; it must be a list of {num_prompts}, one for each prompt", param=name
        )
    return value


def _option_column(name: str, value: Any, num_prompts: int) -> list[Any]:
    """Values of an option that a batch may give once for all prompts, or in a list with one for each."""
    check = _PER_PROMPT[name]
    # A list of ids is one value; a list of such lists has one for each prompt.
    is_column = isinstance(value, list) and (name != "token_ids_logprob" or any(not is_int(item) for item in value))
    if not is_column:
        return [check(name, value)] * num_prompts
    return [check(f"[{index}].{name}", item) for index, item in enumerate(_column(name, value, num_prompts))]


def _samples(prompt: dict[str, Any]) -> list[GenerateRequest]:
    """The requests of a prompt, one for each output; the first has the client's rid, the others rids made of it."""
    rid, samples = prompt["client_rid"], prompt["sampling"].samples()
    return [
        GenerateRequest(**{**prompt, "sampling": sampling}, rid=f"{rid}-{index}" if index else rid, sample=index)
        for index, sampling in enumerate(samples)
    ]


def _sampling_column(value: Any, num_prompts: int) -> list[Any]:
    return _column("sampling_params", value, num_prompts) if isinstance(value, list) else [value] * num_prompts


def _prompt(path: str, text: Any, input_ids: Any, sampling: Any, rid: Any) -> dict[str, Any]:
    if text is None and input_ids is None:
        raise InvalidRequestError(f"{path}text is null; give text, input_ids or both", param=f"{path}text")
    return {
        "path": path,
        "text": None if text is None else checked_text(f"{path}text", text),
        "input_ids": None if input_ids is None else _ids(f"{path}input_ids", input_ids),
        "sampling": _sampling(f"{path}sampling_params", sampling),
        "client_rid": new_rid() if rid is None else _rid(f"{path}rid", rid),
    }


def _ids(path: str, value: Any) -> list[int]:
    if not isinstance(value, list):
        raise reject(path, value, "a list of token ids")
    for position, token_id in enumerate(value):
        if not is_int(token_id):
            raise reject(f"{path}[{position}]", token_id, "a token id")
    return value


def _rid(path: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise reject(path, value, "a non-empty string")
    return checked_text(path, value)


def _sampling(path: str, value: Any) -> SamplingParams:
    sampling = SamplingParams.from_dict(value, path=path)
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


def _boolean(path: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise reject(path, value, "true or false")
    return value


def _integer(allowed: str, low: int, high: int, default: int) -> Callable[[str, Any], int]:
    def check(path: str, value: Any) -> int:
        if value is None:
            return default
        if not is_int(value) or not low <= value <= high:
            raise reject(path, value, allowed)
        return int(value)

    return check


def _probe_ids(path: str, value: Any) -> tuple[int, ...]:
    ids = tuple(_ids(path, [] if value is None else value))
    if len(ids) > MAX_PROBE_IDS:
        raise InvalidRequestError(f"{path} holds {len(ids)} ids; at most {MAX_PROBE_IDS} are taken", param=path)
    return ids


_PER_PROMPT: dict[str, Callable[[str, Any], Any]] = {
    "return_logprob": lambda path, value: _boolean(path, False if value is None else value),
    "logprob_start_len": _integer("an integer of at least -1", -1, 2**63 - 1, -1),
    "top_logprobs_num": _integer(f"an integer from 0 to {MAX_TOP_LOGPROBS}", 0, MAX_TOP_LOGPROBS, 0),
    "token_ids_logprob": _probe_ids,
    "priority": _integer(f"an integer from {-MAX_PRIORITY} to {MAX_PRIORITY}", -MAX_PRIORITY, MAX_PRIORITY, 0),
}


def _check_logprob_options(requests: list[GenerateRequest]) -> None:
    for request in requests:
        for name, value in (
            ("top_logprobs_num", request.top_logprobs_num),
            ("token_ids_logprob", list(request.token_ids_logprob)),
        ):
            if value and not request.return_logprob:
                raise reject(f"{request.path}{name}", value, "left out where return_logprob is false")


def _check_distinct(requests: list[GenerateRequest]) -> None:
    seen: set[str] = set()
    for request in requests:
        if request.rid in seen:
            raise InvalidRequestError(f"rid {request.rid!r} stands twice in this batch", param=f"{request.path}rid")
        seen.add(request.rid)


_KINDS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
}


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "an object")
