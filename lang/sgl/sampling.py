"""SamplingParams: how a gen samples and when it stops.  None means "not said here".

What `gen` says wins over what `run` says, which wins over `RUN_DEFAULTS`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from sgl.errors import ArgumentError, reject
from sgl.regex_check import check_regex

MAX_TOKENS_LIMIT = 2**31 - 1
MAX_SEED = 2**63 - 1
MAX_PRIORITY = 2**31 - 1
MAX_SAMPLES = 128
MAX_STOP_REGEXES = 8
MAX_TOP_LOGPROBS = 100
MAX_PROBE_IDS = 1000

REQUEST_FIELDS = (
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "token_ids_logprob",
    "return_text_in_logprobs",
    "priority",
    "extra_key",
    "return_hidden_states",
    "custom_logit_processor",
    "lora_path",
)
"""Settings that are fields of a native request beside its `sampling_params`."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Sampling settings; build one from user values with `check_sampling`.

    Attributes:
        n: How many outputs are drawn; with more than one the variable is a list, and the state goes on with the first.
        max_new_tokens: Limit on generated tokens.
        min_new_tokens: Until then no token that would end the output may come.
        stop: Strings that end the output; the match is cut off.
        stop_regex: Regexes; the output ends with the first match of one, which is cut off.
        stop_token_ids: Token ids that end the output.
        temperature: 0 picks the most likely token.
        top_p, top_k, min_p: Filters on the distribution; 1.0, -1 and 0.0 turn them off.
        frequency_penalty, presence_penalty: Taken from the logit of a generated token for each time it came, and once.
        repetition_penalty: Divides positive and multiplies negative logits of every token of prompt and output.
        logit_bias: Token ids and what is added to their logits.
        seed: Makes draws repeatable.
        ignore_eos: Go on after the end-of-sequence token.
        json_schema_lenient: Where a schema constrains the output, leave out keywords that cannot be enforced, and name
            them in the meta info.
        return_logprob: Put the log probabilities of the output into the meta info.
        logprob_start_len: First prompt position whose log probability is put there too; -1 for none.
        top_logprobs_num: How many of the likeliest tokens are listed wherever a log probability is.
        token_ids_logprob: Ids whose log probabilities are listed there besides.
        return_text_in_logprobs: Show the text of the tokens there.
        priority: Larger ones run first among the requests that wait for the server.
        extra_key: Requests of different keys share nothing in the prefix cache of the server.
        return_hidden_states: Put the last hidden states into the meta info, where the server was started for it.
        custom_logit_processor: What changes the logits before a token is drawn: a name that the server was started
            with, or where it allows that the JSON text of an object with a pickled callable.
        custom_params: A dict for it.
        lora_path: Adapter of the model; no backend has any yet.
    """

    n: int | None = None
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    stop_regex: tuple[str, ...] | None = None
    stop_token_ids: tuple[int, ...] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    json_schema_lenient: bool | None = None
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    top_logprobs_num: int | None = None
    token_ids_logprob: tuple[int, ...] | None = None
    return_text_in_logprobs: bool | None = None
    priority: int | None = None
    extra_key: str | None = None
    return_hidden_states: bool | None = None
    custom_logit_processor: str | None = None
    custom_params: str | None = None
    lora_path: str | None = None

    def over(self, base: "SamplingParams") -> "SamplingParams":
        """These settings where they say something, those of `base` elsewhere."""
        own = self.given()
        # Most gens say nothing, and records are immutable: the base serves as it is.
        return replace(base, **own) if own else base

    def given(self) -> dict[str, Any]:
        """The settings that say something."""
        return {name: value for name, value in self.__dict__.items() if value is not None}

    def to_protocol(self) -> dict[str, Any]:
        """The `sampling_params` object of a native request."""
        payload = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.given().items()
            if name not in REQUEST_FIELDS
        }
        if "logit_bias" in payload:
            payload["logit_bias"] = {str(token_id): bias for token_id, bias in payload["logit_bias"]}
        if "seed" in payload:
            payload["sampling_seed"] = payload.pop("seed")
        if self.custom_params is not None:
            payload["custom_params"] = json.loads(self.custom_params)
        return payload

    def request_fields(self) -> dict[str, Any]:
        """What a native request says beside its `sampling_params`; asking for any log probability asks for all."""
        fields: dict[str, Any] = {}
        starts = self.logprob_start_len is not None and self.logprob_start_len >= 0
        if self.return_logprob or starts or self.top_logprobs_num or self.token_ids_logprob:
            fields = {"return_logprob": True, "return_text_in_logprobs": self.return_text_in_logprobs is not False}
            if starts:
                fields["logprob_start_len"] = self.logprob_start_len
            if self.top_logprobs_num:
                fields["top_logprobs_num"] = self.top_logprobs_num
            if self.token_ids_logprob:
                fields["token_ids_logprob"] = list(self.token_ids_logprob)
        plain = ("priority", "extra_key", "return_hidden_states", "custom_logit_processor")
        given = self.given()
        return {**fields, **{name: given[name] for name in plain if name in given}}


NOTHING_SAID = SamplingParams()
SAMPLING_FIELDS = tuple(field.name for field in fields(SamplingParams))

RUN_DEFAULTS = SamplingParams(
    n=1,
    max_new_tokens=128,
    stop=(),
    stop_token_ids=(),
    temperature=1.0,
    top_p=1.0,
    top_k=-1,
    min_p=0.0,
    ignore_eos=False,
    return_logprob=False,
)


def check_sampling(values: Mapping[str, Any], *, shown_as: Mapping[str, str] | None = None) -> SamplingParams:
    """Check user values and build the record; the caller's lists are copied, never kept.

    Args:
        values: Field names to values; None means not said.
        shown_as: Names for errors, where the user knows a field by another one.

    Raises:
        ArgumentError: a value has the wrong type or is out of range.
    """
    shown = shown_as or {}
    checked = {name: _CHECKS[name](shown.get(name, name), value) for name, value in values.items() if value is not None}
    return SamplingParams(**checked) if checked else NOTHING_SAID


Check = Callable[[str, Any], Any]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integer(low: int, high: int, *, also: int | None = None) -> Check:
    allowed = f"an integer from {low} to {high}" + ("" if also is None else f", or {also}")

    def check(name: str, value: Any) -> int:
        if not _is_int(value) or not (low <= value <= high or value == also):
            raise reject(name, value, allowed)
        return int(value)

    return check


def _number(allowed: str, accept: Callable[[float], bool]) -> Check:
    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not accept(float(value)):
            raise reject(name, value, allowed)
        return float(value)

    return check


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise reject(name, value, "True or False")
    return value


def _stops(name: str, value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item for item in items):
        raise reject(name, value, "a non-empty string or a list of non-empty strings")
    return tuple(items)


def _stop_regexes(name: str, value: Any) -> tuple[str, ...]:
    regexes = _stops(name, value)
    if len(regexes) > MAX_STOP_REGEXES:
        raise reject(name, value, f"at most {MAX_STOP_REGEXES} regexes")
    for regex in regexes:
        check_regex(name, regex)
        if re.compile(regex).match("") is not None:
            raise ArgumentError(f"{name} {regex!r} matches the empty text, which is everywhere")
    return regexes


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise reject(name, value, "a non-empty string")
    return value


def _token_ids(name: str, value: Any) -> tuple[int, ...]:
    items = [value] if _is_int(value) else value
    if not isinstance(items, list | tuple) or not all(_is_int(item) and item >= 0 for item in items):
        raise reject(name, value, "a token id or a list of token ids")
    return tuple(items)


def _probe_ids(name: str, value: Any) -> tuple[int, ...]:
    ids = _token_ids(name, value)
    if len(ids) > MAX_PROBE_IDS:
        raise reject(name, value, f"at most {MAX_PROBE_IDS} token ids")
    return ids


def _logit_bias(name: str, value: Any) -> tuple[tuple[int, float], ...]:
    allowed = "a dict of token ids and numbers from -100 to 100"
    if not isinstance(value, Mapping):
        raise reject(name, value, allowed)
    entries = []
    for key, bias in value.items():
        token_id = int(key) if isinstance(key, str) and key.isdecimal() else key
        is_number = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not _is_int(token_id) or token_id < 0 or not is_number or not -100 <= bias <= 100:
            raise reject(f"{name}[{key!r}]", bias, allowed)
        entries.append((token_id, float(bias)))
    return tuple(entries)


def _params(name: str, value: Any) -> str:
    """As JSON text: settings are immutable."""
    if not isinstance(value, Mapping):
        raise reject(name, value, "a dict")
    try:
        return json.dumps(dict(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{name} cannot be written as JSON: {error}") from error


_CHECKS: dict[str, Check] = {
    "n": _integer(1, MAX_SAMPLES),
    "max_new_tokens": _integer(0, MAX_TOKENS_LIMIT),
    "min_new_tokens": _integer(0, MAX_TOKENS_LIMIT),
    "stop": _stops,
    "stop_regex": _stop_regexes,
    "stop_token_ids": _token_ids,
    "temperature": _number("a number from 0 to 100", lambda x: 0.0 <= x <= 100.0),
    "top_p": _number("a number above 0, at most 1", lambda x: 0.0 < x <= 1.0),
    "top_k": _integer(1, MAX_TOKENS_LIMIT, also=-1),
    "min_p": _number("a number from 0 to 1", lambda x: 0.0 <= x <= 1.0),
    "frequency_penalty": _number("a number from -2 to 2", lambda x: -2.0 <= x <= 2.0),
    "presence_penalty": _number("a number from -2 to 2", lambda x: -2.0 <= x <= 2.0),
    "repetition_penalty": _number("a number above 0, at most 10", lambda x: 0.0 < x <= 10.0),
    "logit_bias": _logit_bias,
    "seed": _integer(0, MAX_SEED),
    "ignore_eos": _boolean,
    "json_schema_lenient": _boolean,
    "return_logprob": _boolean,
    "logprob_start_len": _integer(-1, MAX_TOKENS_LIMIT),
    "top_logprobs_num": _integer(0, MAX_TOP_LOGPROBS),
    "token_ids_logprob": _probe_ids,
    "return_text_in_logprobs": _boolean,
    "priority": _integer(-MAX_PRIORITY, MAX_PRIORITY),
    "extra_key": _text,
    "return_hidden_states": _boolean,
    "custom_logit_processor": _text,
    "custom_params": _params,
    "lora_path": _text,
}
