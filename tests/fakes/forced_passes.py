"""Passes over requests whose text is known from the start: what a scheduler would plan, with the logits kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgl_runtime.batch import Batch, SamplingBatch
from sgl_runtime.cache.shared_ranges import find_shared
from sgl_runtime.model_runner.model_runner import ModelRunner

CHUNKS = 3
"""Passes over a prompt that is computed in pieces."""


@dataclass(frozen=True)
class ForcedRequest:
    """A request.

    Attributes:
        ids: Its text, with what is "drawn" last.
        prompt_len: Where the prompt ends.
        parent: The request with whose first tokens it begins; None: it shares nothing.
        shared_len: How many they are.
        chunked: Whether its prompt is computed in pieces.
    """

    ids: NDArray[np.int64]
    prompt_len: int
    parent: int | None = None
    shared_len: int = 0
    chunked: bool = False


def make_requests(
    lengths: Sequence[int], families: Sequence[tuple[int, int, int]], *, num_new: int, vocab_size: int, seed: int
) -> list[ForcedRequest]:
    """Requests of random ids.

    Args:
        lengths: Prompts, or what follows the shared part of one.
        families: For each (members, shared_len, more): so many of the first requests begin with the same `shared_len`
            tokens, and all but the first half of them share `more` besides.
        num_new: Tokens behind each prompt.
        vocab_size: Of the model.
        seed: Of the ids.
    """
    rng = np.random.default_rng(seed)
    requests: list[ForcedRequest] = []

    def add(length: int, parent: int | None = None, shared_len: int = 0, **settings: Any) -> None:
        shared = requests[parent].ids[:shared_len] if parent is not None else np.empty(0, dtype=np.int64)
        ids = np.concatenate([shared, rng.integers(0, vocab_size, length + num_new)])
        requests.append(ForcedRequest(ids, len(ids) - num_new, parent, shared_len, **settings))

    for members, shared_len, more in families:
        first, middle = len(requests), len(requests) + members // 2
        add(shared_len + lengths[len(requests)])
        for _ in range(1, members):
            index = len(requests)
            if index <= middle:
                add(lengths[index] + (more if index == middle else 0), first, shared_len)
            else:
                add(lengths[index], middle, shared_len + more)
    for index in range(len(requests), len(lengths)):
        add(lengths[index], chunked=index % 2 == 0 and lengths[index] >= CHUNKS)
    return requests


class ForcedPasses:
    """Plans passes and has them run.

    Args:
        requests: All of them; each has a row of its own.
        num_slots: Slots of the pool, which are handed out in no order.
        pass_tokens: Most new tokens of a pass over prompts, but for longer prompts.
        min_shared: Positions that shared ranges have at least.
    """

    def __init__(self, requests: Sequence[ForcedRequest], *, num_slots: int, pass_tokens: int, min_shared: int) -> None:
        rng = np.random.default_rng(3)
        self.requests = requests
        self._rows = rng.permutation(len(requests)).astype(np.int32)
        self._free = list(rng.permutation(num_slots).astype(np.int32))
        width = max(len(request.ids) for request in requests)
        self._table = np.zeros((len(requests), width), dtype=np.int32)
        self._done = np.zeros(len(requests), dtype=np.int32)
        self._pass_tokens, self._min_shared = pass_tokens, min_shared
        self._has_filters = False

    def prompts(self) -> list[Batch]:
        """Passes over all prompts: parents before children, pieces and whole prompts beside each other."""
        passes: list[Batch] = []
        waiting = set(range(len(self.requests)))
        while waiting:
            ready = [i for i in sorted(waiting) if self.requests[i].parent not in waiting]
            waiting -= set(ready)
            for index in ready:
                self._adopt(index)
            for piece in range(CHUNKS):
                counts = [(i, self._piece(i, piece)) for i in ready]
                passes += self._packed([(i, count) for i, count in counts if count])
        return passes

    def decode(self, indices: Sequence[int]) -> Batch:
        """A decode pass of some requests, whose prompts are done; every other one has rows under filters."""
        self._has_filters = not self._has_filters
        batch = self._batch("decode", [(index, 1) for index in indices])
        shared = find_shared(
            self._table,
            batch.row_ids,
            batch.prefix_lens,
            min_length=self._min_shared,
            min_saved=self._min_shared,
        )
        return replace(batch, shared_ranges=tuple(shared))

    def places(self, batch: Batch) -> list[tuple[int, int]]:
        """Request and position of each row of logits of a pass."""
        index_of = {int(row): index for index, row in enumerate(self._rows)}
        ends = batch.context_lens[batch.samples] - 1
        return [(index_of[int(row)], int(end)) for row, end in zip(batch.row_ids[batch.samples], ends, strict=True)]

    def _adopt(self, index: int) -> None:
        request = self.requests[index]
        if request.parent is not None:
            row, parent = self._rows[index], self._rows[request.parent]
            self._table[row, : request.shared_len] = self._table[parent, : request.shared_len]
            self._done[index] = request.shared_len

    def _piece(self, index: int, piece: int) -> int:
        """How many tokens of a prompt one of its passes computes."""
        request = self.requests[index]
        left = request.prompt_len - int(self._done[index])
        if not request.chunked:
            return left if piece == 0 else 0
        begin, end = (request.prompt_len * at // CHUNKS for at in (piece, piece + 1))
        return end - begin

    def _packed(self, parts: list[tuple[int, int]]) -> list[Batch]:
        passes: list[list[tuple[int, int]]] = [[]]
        for part in parts:
            if passes[-1] and sum(count for _, count in passes[-1]) + part[1] > self._pass_tokens:
                passes.append([])
            passes[-1].append(part)
        return [self._batch("extend", chosen) for chosen in passes if chosen]

    def _batch(self, kind: str, parts: list[tuple[int, int]]) -> Batch:
        indices = np.array([index for index, _ in parts])
        counts = np.array([count for _, count in parts], dtype=np.int32)
        rows, prefixes = self._rows[indices], self._done[indices].copy()
        spans = [(i, int(begin), int(begin + n)) for (i, n), begin in zip(parts, prefixes, strict=True)]
        for index, begin, end in spans:
            self._table[self._rows[index], begin:end] = [self._free.pop() for _ in range(end - begin)]
            self._done[index] = end
        prompt_lens = np.array([self.requests[index].prompt_len for index in indices])
        # Rows that adopted a prefix bring it with their first pass.
        joins = [
            (int(self._rows[i]), self._table[self._rows[i], :begin].copy())
            for i, begin, _ in spans
            if self.requests[i].parent is not None and begin == self.requests[i].shared_len
        ]
        return Batch(
            kind="extend" if kind == "extend" else "decode",
            row_ids=rows,
            prefix_lens=prefixes,
            extend_lens=counts,
            input_ids=np.concatenate([self.requests[index].ids[begin:end] for index, begin, end in spans]),
            slot_ids=np.concatenate([self._table[self._rows[index], begin:end] for index, begin, end in spans]),
            changed_slots=tuple(joins),
            samples=prefixes + counts >= prompt_lens,
            sampling=mixed_sampling(indices, has_filters=self._has_filters),
            wants_logprob=np.zeros(len(parts), dtype=np.bool_),
            logprob_starts=np.full(len(parts), -1, dtype=np.int32),
        )


def mixed_sampling(indices: NDArray[np.int64], *, has_filters: bool) -> SamplingBatch:
    """Greedy rows, rows that draw, and rows that draw under filters if there are any, by number of the request."""
    kinds = indices % (4 if has_filters else 2)
    return SamplingBatch(
        temperatures=np.where(kinds == 0, 0.0, 0.9).astype(np.float32),
        top_ps=np.where(kinds == 2, 0.9, 1.0).astype(np.float32),
        top_ks=np.where(kinds == 3, 20, -1).astype(np.int32),
        min_ps=np.where(kinds == 3, 0.01, 0.0).astype(np.float32),
        uniforms=np.random.default_rng(int(indices[0])).random(len(indices)),
    )


@dataclass
class Kept:
    """Logits of passes.

    Attributes:
        places: Request and position of each row.
        logits: (n, V) of each pass.
    """

    places: list[tuple[int, int]]
    logits: list[Tensor]

    def add(self, other: "Kept") -> None:
        """Append what other passes gave."""
        self.places += other.places
        self.logits += other.logits

    def by_request(self, num_requests: int) -> list[list[int]]:
        """The positions of each request, rising."""
        found: list[list[int]] = [[] for _ in range(num_requests)]
        for index, position in sorted(set(self.places)):
            found[index].append(position)
        return found


def run_passes(runner: ModelRunner, passes: Sequence[Batch], places: Callable[[Batch], list[tuple[int, int]]]) -> Kept:
    """Run passes and keep their logits; what is drawn must be tokens, and of greedy rows the likeliest."""
    kept = Kept([], [])
    for batch in passes:
        output = runner.forward(batch)
        if output.logits is None:
            assert not batch.samples.any()
            continue
        logits = output.logits.clone()
        drawn = torch.from_numpy(runner.sample(batch, output).wait().token_ids[batch.samples]).to(logits.device)
        greedy = torch.from_numpy(batch.sampling.temperatures[batch.samples] == 0).to(logits.device)
        assert bool(((drawn >= 0) & (drawn < logits.shape[1])).all())
        assert bool(torch.isfinite(logits).all())
        # Of equal logits either may be the largest.
        chosen = logits.gather(1, drawn.unsqueeze(1)).squeeze(1)
        assert bool((chosen == logits.amax(dim=-1))[greedy].all())
        kept.places += places(batch)
        kept.logits.append(logits)
    return kept
