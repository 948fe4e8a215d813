"""Texts and ids of which vectors are wanted, and the requests that are made of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import SamplingParams, reject
from sgl_runtime.server.field_checks import MAX_INTEGER, checked_id, checked_integer, checked_text, is_int, token_ids
from sgl_runtime.server.generate_request import GenerateRequest, PoolingWish, new_rid

ENCODE_OPTIONS = ("model", "user", "rid", "priority", "truncate_prompt_tokens")
"""Fields that every body of this kind takes besides its own."""

TO_LIMIT = -1
"""As `truncate_prompt_tokens`: to what the model reads."""


@dataclass(frozen=True, kw_only=True)
class EncodeInput:
    """One text, pair of texts or list of ids.

    Attributes:
        field: Where it stands in the body.
        text: The text; None for ids.
        pair: The second text of a pair; None for a single one.
        input_ids: The ids, taken as they are; None for text.
    """

    field: str
    text: str | None = None
    pair: str | None = None
    input_ids: list[int] | None = None


def checked_input_text(field: str, value: Any) -> str:
    """A text with something in it.

    Raises:
        InvalidRequestError: it is something else.
    """
    if checked_text(field, value) == "":
        raise InvalidRequestError(f"{field} is an empty string; it must hold some text", param=field)
    return str(value)


def parse_inputs(field: str, value: Any) -> tuple[list[EncodeInput], bool]:
    """The inputs of a field, and whether it holds a list of them.

    Args:
        field: The field.
        value: A string, a list of ids, or a list of such.

    Raises:
        InvalidRequestError: it is something else, or empty.
    """
    if not isinstance(value, str | list):
        raise reject(field, value, "a string, a list of token ids, or a list of such")
    if value == []:
        raise InvalidRequestError(f"{field} is an empty list; it must hold at least one text or token id", param=field)
    if isinstance(value, str) or is_int(value[0]):
        return [_input(field, value)], False
    return [_input(f"{field}[{index}]", item) for index, item in enumerate(value)], True


def encode_requests(inputs: Sequence[EncodeInput], fields: dict[str, Any]) -> list[GenerateRequest]:
    """One request for each input.

    Args:
        inputs: At least one.
        fields: The body, for `ENCODE_OPTIONS`.

    Raises:
        InvalidRequestError: an option is wrong.
    """
    priority = checked_integer("priority", fields.get("priority", 0), low=-MAX_INTEGER)
    max_length = fields.get("truncate_prompt_tokens")
    if max_length is not None and max_length != TO_LIMIT:
        max_length = checked_integer("truncate_prompt_tokens", max_length, low=1)
    return [
        GenerateRequest(
            rid=rid,
            client_rid=rid,
            text=given.text,
            input_ids=given.input_ids,
            sampling=SamplingParams(max_new_tokens=0),
            pooling=PoolingWish(field=given.field, pair=given.pair, max_length=max_length),
            priority=priority,
        )
        for given, rid in zip(inputs, _rids(fields.get("rid"), len(inputs)), strict=True)
    ]


def _input(field: str, value: Any) -> EncodeInput:
    if isinstance(value, str):
        return EncodeInput(field=field, text=checked_input_text(field, value))
    if not isinstance(value, list):
        raise reject(field, value, "a string or a list of token ids")
    if not value:
        raise InvalidRequestError(f"{field} is an empty list; it must hold at least one token id", param=field)
    return EncodeInput(field=field, input_ids=token_ids(field, value))


def _rids(value: Any, count: int) -> list[str]:
    if value is None:
        return [new_rid() for _ in range(count)]
    rids = value if isinstance(value, list) else [value]
    if len(rids) != count:
        raise InvalidRequestError(f"rid gives {len(rids)} ids; the body holds {count} inputs", param="rid")
    names = [checked_id(f"rid[{index}]" if rids is value else "rid", rid) for index, rid in enumerate(rids)]
    if len(set(names)) < count:
        raise InvalidRequestError("rid names one request twice; each must have its own", param="rid")
    return names
