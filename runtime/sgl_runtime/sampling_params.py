"""SamplingParams: how one request samples, when it stops and what constrains it.

The same fields, names and ranges as the `sampling_params` object of a native request (docs/protocol.md).
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from sgl_runtime.errors import InvalidRequestError

GrammarKind = Literal["choices", "regex", "json_schema", "ebnf", "structural_tag"]
GRAMMAR_KINDS: tuple[GrammarKind, ...] = get_args(GrammarKind)

MAX_SEED = 2**63 - 1
MAX_SAMPLES = 128
MAX_STOPS = 128
MAX_STOP_CHARACTERS = 16_384
MAX_STOP_REGEXES = 8
MAX_STOP_IDS = 10_000
MAX_BIASES = 300_000
MAX_CONSTRAINT = 1_000_000
"""Characters of a constraint."""

MAX_SHOWN = 80
"""Characters of what a client sent that an error repeats."""

MAX_PARAMS_DEPTH = 32
MAX_PARAMS_CHARACTERS = 65_536


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling settings of one request, checked.

    Attributes:
        n: How many outputs are drawn for the prompt.
        max_new_tokens: Limit on generated tokens; 0 only fills the cache and scores the prompt; None lets the
            request use what is left of the context.
        temperature: Divides the logits; 0 picks the most likely token.
        top_p, top_k, min_p: Filters on the distribution; 1.0, -1 and 0.0 turn them off.
        frequency_penalty, presence_penalty: Taken from the logit of a generated token for each time it came, and once.
        repetition_penalty: Divides positive and multiplies negative logits of every token of prompt and output.
        min_new_tokens: Until then no token that would end the output may come.
        logit_bias: Token ids and what is added to their logits.
        sampling_seed: Makes the draw of this request repeatable; None draws a fresh one.
        stop: Strings that end the output; the match is cut off.
        stop_regex: Regexes; the output ends with the first match of one, which is cut off.
        stop_token_ids: Token ids that end the output; the token is cut off.
        ignore_eos: Go on after the end-of-sequence token.
        no_stop_trim: Keep the matched stop in the output.
        skip_special_tokens: Leave special tokens out of the text.
        choices, regex, json_schema, ebnf, structural_tag: At most one; the output is then a member, a full match, a
            valid instance, a word of the grammar, text whose tagged parts match what their tags say.
        json_schema_lenient: Leave out keywords of the schema that cannot be enforced, and name them in the reply.
        custom_params: JSON text of the object that the request's custom logit processor is given; None for none.
    """

    n: int = 1
    max_new_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_new_tokens: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    sampling_seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_regex: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    no_stop_trim: bool = False
    skip_special_tokens: bool = True
    choices: tuple[str, ...] | None = None
    regex: str | None = None
    json_schema: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None
    json_schema_lenient: bool = False
    custom_params: str | None = None

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken at every step."""
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def edits_logits(self) -> bool:
        """Whether a penalty, a bias or a minimum length is set."""
        neutral = (0.0, 0.0, 1.0, 0, ())
        given = (self.frequency_penalty, self.presence_penalty, self.repetition_penalty, self.min_new_tokens)
        return (*given, self.logit_bias) != neutral

    @property
    def grammar_kind(self) -> GrammarKind | None:
        """Which constraint is set, if any."""
        given = (self.choices, self.regex, self.json_schema, self.ebnf, self.structural_tag)
        kinds = zip(GRAMMAR_KINDS, given, strict=True)
        return next((kind for kind, value in kinds if value is not None), None)

    def samples(self) -> "list[SamplingParams]":
        """Settings of the `n` outputs, one each: the first has the seed itself, the others seeds made from it."""
        if self.n == 1:
            return [self]
        return [replace(self, n=1, sampling_seed=_sample_seed(self.sampling_seed, index)) for index in range(self.n)]

    @classmethod
    def from_dict(cls, data: Any, *, path: str = "sampling_params") -> "SamplingParams":
        """Check a request's JSON object and build the record.

        Args:
            data: The JSON object; None means all defaults.
            path: Prefix of field names in errors.

        Raises:
            InvalidRequestError: a field is unknown, of the wrong type, out of range, or two constraints are set.
        """
        if data is None:
            return cls()
        if not isinstance(data, dict):
            raise reject(path, data, "an object")
        values: dict[str, Any] = {}
        for name, value in data.items():
            check = SAMPLING_CHECKS.get(name)
            if check is None:
                shown, known = f"{path}.{name[:MAX_SHOWN]}", ", ".join(SAMPLING_CHECKS)
                raise InvalidRequestError(f"{shown} is not a known field; known: {known}", param=shown)
            if value is not None:
                values[name] = check(f"{path}.{name}", value)
        chosen = [name for name in GRAMMAR_KINDS if name in values]
        if len(chosen) > 1:
            raise InvalidRequestError(
                f"{path} sets {' and '.join(chosen)}; set at most one constraint", param=f"{path}.{chosen[1]}"
            )
        if values.get("json_schema_lenient") and "json_schema" not in values:
            raise InvalidRequestError(
                f"{path}.json_schema_lenient is set without json_schema", param=f"{path}.json_schema_lenient"
            )
        return cls(**values)


def _sample_seed(seed: int | None, index: int) -> int | None:
    if seed is None or index == 0:
        return seed
    digest = hashlib.blake2b(f"{seed} sample {index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (MAX_SEED + 1)


def reject(path: str, value: Any, allowed: str) -> InvalidRequestError:
    """The error for a field at `path` that holds `value` where `allowed` was expected."""
    # A field that is null counts as left out; in a list it is there.
    absent = "null" if path.endswith("]") else "missing"
    return InvalidRequestError(
        f"{path} is {absent if value is None else _shown(value)}; it must be {allowed}", param=path
    )


def _shown(value: Any) -> str:
    """The beginning of a value, at a cost that does not grow with it."""
    try:
        shown = repr(_beginning(value, iter(range(MAX_SHOWN))))
    except ValueError:
        # An integer of thousands of digits.
        shown = f"a value of type {type(value).__name__}"
    return shown[: MAX_SHOWN - 3] + "..." if len(shown) > MAX_SHOWN else shown


def _beginning(value: Any, room: Iterator[int]) -> Any:
    """A value with so many of its first parts as there is room for: each shows as at least one character."""
    if isinstance(value, str):
        return value[:MAX_SHOWN]
    if isinstance(value, dict):
        return {
            _beginning(key, room): _beginning(inner, room) for (key, inner), _ in zip(value.items(), room, strict=False)
        }
    if isinstance(value, list | tuple):
        return [_beginning(inner, room) for inner, _ in zip(value, room, strict=False)]
    return value


Check = Callable[[str, Any], Any]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class IntegerRange:
    """Checks integers from `low` to `high`; `also` is allowed besides."""

    low: int
    high: int
    also: int | None = None

    def __call__(self, path: str, value: Any) -> int:
        """The integer.

        Raises:
            InvalidRequestError: it is something else, or outside.
        """
        if not _is_int(value) or not (self.low <= value <= self.high or value == self.also):
            besides = "" if self.also is None else f", or {self.also}"
            raise reject(path, value, f"an integer from {self.low} to {self.high}{besides}")
        return int(value)


@dataclass(frozen=True)
class NumberRange:
    """Checks numbers from `low` to `high`; with `is_open`, `low` itself is not allowed."""

    low: float
    high: float
    is_open: bool = False

    def __call__(self, path: str, value: Any) -> float:
        """The number.

        Raises:
            InvalidRequestError: it is something else, or outside.
        """
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not self.low <= value <= self.high or (self.is_open and value == self.low):
            span = (
                f"above {self.low:g}, at most {self.high:g}" if self.is_open else f"from {self.low:g} to {self.high:g}"
            )
            raise reject(path, value, f"a number {span}")
        return float(value)


def _boolean(path: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise reject(path, value, "true or false")
    return value


def _regex_text(path: str, value: Any) -> str:
    if not isinstance(value, str):
        raise reject(path, value, "a string")
    _check_size(path, len(value), MAX_CONSTRAINT, "characters")
    return value


def _stops(path: str, value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item for item in items):
        raise reject(path, value, "a non-empty string or a list of non-empty strings")
    # Each is searched for in the output of every step.
    _check_size(path, len(items), MAX_STOPS, "strings")
    _check_size(path, sum(map(len, items)), MAX_STOP_CHARACTERS, "characters")
    return tuple(items)


def _check_size(path: str, size: int, most: int, what: str) -> None:
    if size > most:
        raise InvalidRequestError(f"{path} holds {size} {what}; at most {most} are taken", param=path)


def _stop_regexes(path: str, value: Any) -> tuple[str, ...]:
    items = _stops(path, value)
    _check_size(path, len(items), MAX_STOP_REGEXES, "regexes")
    return items


def _token_ids(path: str, value: Any) -> tuple[int, ...]:
    items = [value] if _is_int(value) else value
    if not isinstance(items, list | tuple) or not all(_is_int(item) and item >= 0 for item in items):
        raise reject(path, value, "a token id or a list of token ids")
    _check_size(path, len(items), MAX_STOP_IDS, "token ids")
    return tuple(items)


def _choices(path: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(item, str) and item for item in value):
        raise reject(path, value, "a non-empty list of non-empty strings")
    seen: set[str] = set()
    for item in value:
        if item in seen:
            raise InvalidRequestError(f"{path} holds {_shown(item)} more than once", param=path)
        seen.add(item)
    return tuple(value)


def _json_text(allowed: str, *, types: tuple[type, ...]) -> Check:
    def check(path: str, value: Any) -> str:
        text = _as_json(path, value) if isinstance(value, types) else value
        if not isinstance(text, str) or not text:
            raise reject(path, value, allowed)
        _check_size(path, len(text), MAX_CONSTRAINT, "characters")
        return text

    return check


def _small_object(path: str, value: Any) -> str:
    if not isinstance(value, dict):
        raise reject(path, value, "an object")
    if _is_deeper(value, MAX_PARAMS_DEPTH):
        raise InvalidRequestError(f"{path} nests more than {MAX_PARAMS_DEPTH} objects and lists", param=path)
    text = _as_json(path, value)
    if len(text) > MAX_PARAMS_CHARACTERS:
        raise InvalidRequestError(
            f"{path} has {len(text)} characters as JSON; at most {MAX_PARAMS_CHARACTERS} are taken", param=path
        )
    return text


def _is_deeper(value: Any, limit: int) -> bool:
    """Whether objects and lists stand in each other more than `limit` deep."""
    level = [value]
    for _ in range(limit):
        items = [item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer)]
        level = [item for item in items if isinstance(item, dict | list | tuple)]
    return bool(level)


def _as_json(path: str, value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path} cannot be written as JSON: {error}", param=path) from error


def _grammar_text(path: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise reject(path, value, "a grammar as a non-empty string")
    _check_size(path, len(value), MAX_CONSTRAINT, "characters")
    return value


def _logit_bias(path: str, value: Any) -> tuple[tuple[int, float], ...]:
    allowed = "an object of token ids (as strings) and numbers from -100 to 100"
    if not isinstance(value, dict):
        raise reject(path, value, allowed)
    _check_size(path, len(value), MAX_BIASES, "biases")
    entries = []
    for key, bias in value.items():
        is_id = isinstance(key, str) and key.isdecimal() and len(key) < 10
        is_number = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not is_id or not is_number or not -100 <= bias <= 100:
            raise reject(f"{path}[{key!r}]", bias, allowed)
        entries.append((int(key), float(bias)))
    return tuple(entries)


SAMPLING_CHECKS: Mapping[str, Check] = {
    "n": IntegerRange(1, MAX_SAMPLES),
    "max_new_tokens": IntegerRange(0, 2**31 - 1),
    "temperature": NumberRange(0, 100),
    "top_p": NumberRange(0, 1, is_open=True),
    "top_k": IntegerRange(1, 2**31 - 1, also=-1),
    "min_p": NumberRange(0, 1),
    "frequency_penalty": NumberRange(-2, 2),
    "presence_penalty": NumberRange(-2, 2),
    "repetition_penalty": NumberRange(0, 10, is_open=True),
    "min_new_tokens": IntegerRange(0, 2**31 - 1),
    "logit_bias": _logit_bias,
    "sampling_seed": IntegerRange(0, MAX_SEED),
    "stop": _stops,
    "stop_regex": _stop_regexes,
    "stop_token_ids": _token_ids,
    "ignore_eos": _boolean,
    "no_stop_trim": _boolean,
    "skip_special_tokens": _boolean,
    "choices": _choices,
    "regex": _regex_text,
    "json_schema": _json_text("a JSON Schema as an object or as JSON text", types=(dict, bool)),
    "json_schema_lenient": _boolean,
    "ebnf": _grammar_text,
    "structural_tag": _json_text("a structural tag as an object or as JSON text", types=(dict,)),
    "custom_params": _small_object,
}
"""What checks each field, and gives what the record holds."""
