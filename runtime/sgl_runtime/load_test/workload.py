"""Requests of a load test: what is asked, and when."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sgl_runtime.errors import ConfigError

_FIRST_ORDINARY_ID = 1000
"""Ids below it are often control tokens and single bytes."""


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """One request.

    Attributes:
        prompt: Text, token ids, or chat messages.
        max_tokens: Most tokens of the answer.
        extra: Fields of the body besides.
    """

    prompt: str | list[int] | list[dict[str, Any]]
    max_tokens: int
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RandomShape:
    """Sizes of made-up requests.

    Attributes:
        input_len, output_len: Largest number of tokens.
        range_ratio: The smallest as a share of the largest; 1 makes all alike.
        prefix_len: First tokens that all prompts share, besides `input_len`.
    """

    input_len: int
    output_len: int
    range_ratio: float
    prefix_len: int

    def lengths(self, largest: int, count: int, rng: np.random.Generator) -> list[int]:
        """That many lengths, uniform from the smallest to the largest."""
        smallest = max(1, math.floor(largest * self.range_ratio))
        lengths: list[int] = rng.integers(smallest, largest, size=count, endpoint=True).tolist()
        return lengths


def random_requests(shape: RandomShape, count: int, *, vocab_size: int, seed: int) -> list[LoadRequest]:
    """Prompts of random token ids, whose answers run to their full length.

    Args:
        shape: Their sizes.
        count: How many.
        vocab_size: Ids are below it.
        seed: The same seed gives the same requests.
    """
    rng = np.random.default_rng(seed)
    low = min(_FIRST_ORDINARY_ID, vocab_size // 2)
    prefix = rng.integers(low, vocab_size, size=shape.prefix_len).tolist()
    inputs = shape.lengths(shape.input_len, count, rng)
    outputs = shape.lengths(shape.output_len, count, rng)
    return [
        LoadRequest(
            prompt=prefix + rng.integers(low, vocab_size, size=num_inputs).tolist(),
            max_tokens=num_outputs,
            extra={"ignore_eos": True},
        )
        for num_inputs, num_outputs in zip(inputs, outputs, strict=True)
    ]


def read_requests(path: Path, count: int, *, output_len: int) -> list[LoadRequest]:
    """Requests of a file: JSON lines, or a JSON list of ShareGPT conversations.

    Args:
        path: Each line or entry has `prompt` (text or ids), `messages`, or `conversations`; the first two may have
            `max_tokens`.
        count: How many are taken; a shorter file is gone through again.
        output_len: `max_tokens` where an entry says nothing.

    Raises:
        ConfigError: the file cannot be read, or has an entry of another form.
    """
    try:
        text = path.read_text(encoding="utf-8")
        is_list = text.lstrip().startswith("[")
        entries = json.loads(text) if is_list else [json.loads(line) for line in text.splitlines() if line.strip()]
    except OSError as error:
        raise ConfigError(f"dataset-path {str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"dataset-path {str(path)!r} holds neither JSON lines nor a JSON list: {error}") from error
    requests = [_request(f"{path.name}[{index}]", entry, output_len) for index, entry in enumerate(entries[:count])]
    if not requests:
        raise ConfigError(f"dataset-path {str(path)!r} holds no requests")
    return [requests[index % len(requests)] for index in range(count)]


def _request(place: str, entry: Any, output_len: int) -> LoadRequest:
    if not isinstance(entry, dict):
        raise ConfigError(f"{place} is no object; it must have prompt, messages or conversations")
    max_tokens = entry.get("max_tokens", output_len)
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1:
        raise ConfigError(f"{place}.max_tokens is {max_tokens!r}; it must be an integer of at least 1")
    conversation = entry.get("conversations")
    if isinstance(conversation, list) and conversation:
        first = conversation[0]
        if not isinstance(first, dict) or not isinstance(first.get("value"), str):
            raise ConfigError(f"{place}.conversations[0] has no text in value")
        return LoadRequest(prompt=first["value"], max_tokens=max_tokens)
    prompt = entry.get("messages", entry.get("prompt"))
    if not isinstance(prompt, str | list) or not prompt:
        raise ConfigError(f"{place} has neither prompt, messages nor conversations")
    return LoadRequest(prompt=prompt, max_tokens=max_tokens)


def arrival_times(count: int, *, rate: float, seed: int) -> Iterator[float]:
    """Seconds from the start at which requests are sent.

    Args:
        count: How many.
        rate: Requests a second on average, as a Poisson process; infinity sends all at once.
        seed: The same seed gives the same times.
    """
    rng = np.random.default_rng(seed)
    now = 0.0
    for _ in range(count):
        yield now
        if rate != math.inf:
            now += float(rng.exponential(1.0 / rate))
