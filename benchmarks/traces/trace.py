"""Traces: requests with their arrival, their prompts by shared parts, and the lengths of their outputs.

A trace is a list of `TraceRequest`; on disk it is one JSON array a line, the fields in order.
"""

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.scheduler.uniforms import uniforms

VOCABULARY_SIZE = 32_000

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class TraceRequest:
    """One request.

    Attributes:
        after: Place of the request whose prompt and output its prompt goes on from, which must have ended; -1 for none.
        delay_s: Time of its arrival; with `after`, from that request's end on.
        parts: (seed, length) of what its prompt consists of, behind what it goes on from.
        output_len: Tokens that it generates.
        seed: Of its output.
    """

    after: int
    delay_s: float
    parts: tuple[tuple[int, int], ...]
    output_len: int
    seed: int


def part_ids(seed: int, length: int) -> Ids:
    return np.random.default_rng(seed).integers(0, VOCABULARY_SIZE, length)


def drawn_ids(numbers: NDArray[np.float64]) -> Ids:
    """The tokens that the simulated model draws at some random numbers."""
    return (numbers * VOCABULARY_SIZE).astype(np.int64)


class TraceTokens:
    """Prompts and outputs of a trace.

    Args:
        requests: The trace.
    """

    def __init__(self, requests: list[TraceRequest]) -> None:
        self._requests = requests
        self._parts: dict[tuple[int, int], Ids] = {}
        self._prompts: list[Ids] = []
        for request in requests:
            before = [] if request.after < 0 else [self._prompts[request.after], self.output(request.after)]
            prompt = np.concatenate([*before, *(self._part(*part) for part in request.parts)])
            self._prompts.append(prompt.astype(np.int32))

    def prompt(self, place: int) -> Ids:
        return self._prompts[place].astype(np.int64)

    def output(self, place: int) -> Ids:
        request = self._requests[place]
        seeds = np.full(request.output_len, request.seed, dtype=np.uint64)
        return drawn_ids(uniforms(seeds, np.arange(request.output_len, dtype=np.uint64)))

    def sequence(self, place: int) -> Ids:
        """What is in the cache once the request has ended: all but the last token drawn."""
        return np.concatenate([self._prompts[place], self.output(place)[:-1]])

    def _part(self, seed: int, length: int) -> Ids:
        if (seed, length) not in self._parts:
            self._parts[seed, length] = part_ids(seed, length)
        return self._parts[seed, length]


def write_trace(path: Path, requests: Iterable[TraceRequest]) -> None:
    path.write_text("".join(f"{json.dumps(astuple(request))}\n" for request in requests), encoding="utf-8")


def read_trace(path: Path) -> list[TraceRequest]:
    """Raises ValueError where a line is no request, or goes on from one that is not before it."""
    requests: list[TraceRequest] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            after, delay_s, parts, output_len, seed = json.loads(line)
            request = TraceRequest(after, delay_s, tuple((part[0], part[1]) for part in parts), output_len, seed)
        except (ValueError, TypeError, IndexError) as error:
            raise ValueError(f"{path}:{number} is no request: {error}") from error
        if not -1 <= after < len(requests) or output_len < 1 or not (parts or after >= 0):
            raise ValueError(f"{path}:{number} goes on from nothing before it, or has no prompt or output")
        requests.append(request)
    return requests
