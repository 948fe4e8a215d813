"""GenerateRequest: the body of `/generate`, checked (docs/protocol.md)."""

import uuid
from collections.abc import Sequence
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
    "return_text_in_logprobs",
    "return_text_ids",
)


@dataclass(frozen=True, kw_only=True)
class GenerateRequest:
    """One prompt and how to go on from it.

    Attributes:
        rid: Request id.
        text: Text that follows `input_ids`; None without one.
        input_ids: Prompt as ids; None without any.
        sampling: Checked settings.
        return_logprob: Whether log probabilities are wanted.
        logprob_start_len: First prompt position whose log probability is wanted; -1 for none.
        return_text_in_logprobs: Whether their triples hold text.
        return_text_ids: Whether the ids of `text` are wanted.
        path: Prefix of field names in errors: empty, or `[i].` in a batch.
    """

    rid: str
    text: str | None
    input_ids: list[int] | None
    sampling: SamplingParams
    return_logprob: bool = False
    logprob_start_len: int = -1
    return_text_in_logprobs: bool = False
    return_text_ids: bool = False
    path: str = ""

    @property
    def in_batch(self) -> bool:
        """Whether the request is one of a list."""
        return bool(self.path)


@dataclass(frozen=True, kw_only=True)
class GenerateBody:
    """A parsed body.

    Attributes:
        requests: One for each prompt.
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
    stream = _boolean(fields, "stream")
    flags: dict[str, Any] = {
        name: _boolean(fields, name) for name in ("return_logprob", "return_text_in_logprobs", "return_text_ids")
    }
    logprob_start_len = fields.get("logprob_start_len", -1)
    if not is_int(logprob_start_len) or logprob_start_len < -1:
        raise reject("logprob_start_len", logprob_start_len, "an integer of at least -1")
    text, input_ids = fields.get("text"), fields.get("input_ids")
    if text is None and input_ids is None:
        raise InvalidRequestError("the request has neither text nor input_ids; give one or both", param="text")
    num_prompts = _num_prompts(text, input_ids)
    if num_prompts is None:
        rid = fields.get("rid")
        prompts = [_prompt("", text, input_ids, fields.get("sampling_params"), rid)]
    else:
        columns = [
            _column("text", text, num_prompts),
            _column("input_ids", input_ids, num_prompts),
            _sampling_column(fields.get("sampling_params"), num_prompts),
            _column("rid", fields.get("rid"), num_prompts),
        ]
        prompts = [_prompt(f"[{index}].", *row) for index, row in enumerate(zip(*columns, strict=True))]
    requests = [GenerateRequest(**prompt, **flags, logprob_start_len=logprob_start_len) for prompt in prompts]
    _check_distinct([request.rid for request in requests])
    return GenerateBody(requests=requests, is_batch=num_prompts is not None, stream=stream)


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
        "rid": new_rid() if rid is None else _rid(f"{path}rid", rid),
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
        ("choices", sampling.choices or ()),
        ("regex", (sampling.regex or "",)),
        ("json_schema", (sampling.json_schema or "",)),
    ):
        for text in texts:
            checked_text(f"{path}.{name}", text)
    return sampling


def _boolean(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise reject(name, value, "true or false")
    return value


def _check_distinct(rids: list[str]) -> None:
    seen: set[str] = set()
    for index, rid in enumerate(rids):
        if rid in seen:
            raise InvalidRequestError(f"rid {rid!r} stands twice in this batch", param=f"[{index}].rid")
        seen.add(rid)


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
