"""Batch and StepOutput: the plain host records that cross the seam between scheduler and device.

A Batch is complete when it is built and holds no Req; the device half never asks back.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class SamplingBatch:
    """Sampling settings by row, each of shape (B,).

    Attributes:
        temperatures: float32; 0 takes the most likely token.
        top_ps, min_ps: float32; 1 and 0 are off.
        top_ks: int32; -1 is off.
        uniforms: float64 in [0, 1): the random number that the row's draw uses.
    """

    temperatures: NDArray[np.float32]
    top_ps: NDArray[np.float32]
    top_ks: IntArray
    min_ps: NDArray[np.float32]
    uniforms: NDArray[np.float64]

    def select(self, rows: NDArray[np.bool_]) -> "SamplingBatch":
        """The settings of some rows, chosen by a (B,) bool array."""
        return SamplingBatch(
            temperatures=self.temperatures[rows],
            top_ps=self.top_ps[rows],
            top_ks=self.top_ks[rows],
            min_ps=self.min_ps[rows],
            uniforms=self.uniforms[rows],
        )


@dataclass(frozen=True, kw_only=True)
class ProcessorCall:
    """A custom processor that changes the logits of one row.

    Attributes:
        row: Row of the batch.
        name: Its name, or the pickled callable in hexadecimal digits.
        is_pickled: Which of the two.
        params: What it is given for this row: the request's own object, and under `__prompt_ids__` and `__output_ids__`
            the tokens so far, (n,) int64 each.
    """

    row: int
    name: str
    is_pickled: bool
    params: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class LogitEdits:
    """What requests do to their logits: changes of single ones, each (row, token) at most once, then custom processors.

    Attributes:
        rows: (K,) int64 rows of the batch.
        token_ids: (K,) int64.
        repetition: (K,) float32; divides a positive logit, multiplies a negative one.
        added: (K,) float32, added after that; minus infinity forbids the token.
        calls: The custom processors.
    """

    rows: NDArray[np.int64]
    token_ids: NDArray[np.int64]
    repetition: NDArray[np.float32]
    added: NDArray[np.float32]
    calls: tuple[ProcessorCall, ...] = ()


class AutomatonTables(Protocol):
    """An automaton as `grammar.automaton.ByteAutomaton` defines it, in plain arrays."""

    @property
    def byte_classes(self) -> NDArray[np.uint8]:
        """(256,)."""

    @property
    def table(self) -> IntArray:
        """(S, K)."""

    @property
    def accepting(self) -> NDArray[np.bool_]:
        """(S,)."""

    @property
    def edge_target(self) -> IntArray:
        """(E,)."""

    @property
    def edge_argument(self) -> IntArray:
        """(E,)."""

    @property
    def returns(self) -> IntArray:
        """(R,)."""

    @property
    def needed_depth(self) -> IntArray:
        """(S,)."""

    @property
    def needed_behind(self) -> IntArray:
        """(E,)."""


@dataclass(frozen=True)
class SharedRange:
    """Positions whose slots are the same in several rows.

    Attributes:
        rows: (n,) rows of the pass.
        begin, end: Positions.
    """

    rows: NDArray[np.int64]
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True)
class GrammarMoves:
    """Where rows of the slot table stand in automata that lie on the device; set before anything is drawn.

    Attributes:
        rows: (n,) rows of the slot table.
        handles: The automaton of each, as `DeviceGrammars.hold` named it; None: the row is free from now on.
        states: The state of each.
        stacks: The stack of each.
    """

    rows: IntArray
    handles: tuple[int | None, ...]
    states: tuple[int, ...]
    stacks: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class SlotCopies:
    """Tokens whose keys and values are copied between the pools of the device and of the host; both of shape (N,).

    Attributes:
        device_slots: Slots of the device's pool.
        host_slots: Slots of the host's pool, in the same order.  On the side that is written no slot comes twice.
    """

    device_slots: IntArray
    host_slots: IntArray


@dataclass(frozen=True, kw_only=True)
class GivenRows:
    """New tokens whose embeddings the requests bring, in place of the model's.

    Attributes:
        places: (n,) int64 places among the new tokens of the pass; their ids count for nothing.
        rows: (n, C) float32.
    """

    places: NDArray[np.int64]
    rows: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class PoolSpans:
    """New tokens whose hidden states are added up, by row of the batch; both of shape (B,).

    Attributes:
        starts: First token (index within the row's new tokens), -1 for rows of which nothing is wanted.
        ends: One past the last.
    """

    starts: IntArray
    ends: IntArray


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Plan of one pass over B requests with T new tokens in all.

    Attributes:
        kind: "extend" (several new tokens a row) or "decode" (one each).
        row_ids: (B,) rows of the slot table.
        prefix_lens: (B,) positions whose keys and values are already in the pool.
        extend_lens: (B,) new tokens of each row; they lie one after another in `input_ids`.
        input_ids: (T,) int64 token ids; -1 - row stands for the token that the pass before drew for that row of the
            slot table, which only the device knows yet.
        slot_ids: (T,) slot of each new token.
        changed_slots: Rows of the slot table, and the slots of their first positions, that the device's mirror does not
            hold yet (rows that join the batch).
        samples: (B,) bool, whether the row's next token is drawn.
        sampling: Settings of all rows, used where `samples`.
        wants_logprob: (B,) bool, whether the log probability of the drawn token is wanted.
        logprob_starts: (B,) first token (index within the row's new tokens) whose log probability given what precedes
            it is wanted, -1 for none; never 0 unless the row has no prefix, in which case entry 0 is not defined.
        next_ids: (B,) int64 token that follows the row's new tokens where it is known and its log probability is wanted
            with theirs (a prompt that is computed in pieces), else -1; None: of no row.
        hidden_starts: (B,) first token (index within the row's new tokens) whose last hidden state is wanted, -1 for
            none; None: of no row.
        top_nums: (B,) how many of the likeliest tokens are wanted where the row's log probability is; None: for no row.
        probe_ids: For each row the int64 ids whose log probabilities are wanted there besides; None: for no row.
        shared_ranges: Positions, all of them before the new tokens, that several rows share, and that are worth to be
            attended at once; rows in no order.
        grammar_moves: Rows whose place in an automaton on the device is set; None: of none.
        is_constrained: Whether the device makes masks for some row.
        is_edited: Whether the host will bring masks or edits of logits.
        given_rows: New tokens whose embeddings the requests bring; None: of no row.
        segments: (T,) int64, of which text of a pair each new token is; None: all of the first.
        pool_spans: Hidden states that become vectors; None: of no row.
        stores: Copies to the host, to be made before anything else; None: none.
        loads: Copies from the host, to be made next, before the pass writes anything; None: none.
    """

    kind: Literal["extend", "decode"]
    row_ids: IntArray
    prefix_lens: IntArray
    extend_lens: IntArray
    input_ids: NDArray[np.int64]
    slot_ids: IntArray
    changed_slots: tuple[tuple[int, IntArray], ...]
    samples: NDArray[np.bool_]
    sampling: SamplingBatch
    wants_logprob: NDArray[np.bool_]
    logprob_starts: IntArray
    next_ids: NDArray[np.int64] | None = None
    hidden_starts: IntArray | None = None
    top_nums: IntArray | None = None
    probe_ids: tuple[NDArray[np.int64], ...] | None = None
    shared_ranges: tuple[SharedRange, ...] = ()
    grammar_moves: GrammarMoves | None = None
    is_constrained: bool = False
    is_edited: bool = False
    given_rows: GivenRows | None = None
    segments: NDArray[np.int64] | None = None
    pool_spans: PoolSpans | None = None
    stores: SlotCopies | None = None
    loads: SlotCopies | None = None

    @property
    def size(self) -> int:
        """B."""
        return len(self.row_ids)

    @property
    def context_lens(self) -> IntArray:
        """(B,) positions in the pool once this pass is done."""
        return self.prefix_lens + self.extend_lens

    def wants_alternatives(self, row: int) -> bool:
        """Whether log probabilities of other tokens than the one that comes are wanted in a row."""
        has_top = self.top_nums is not None and bool(self.top_nums[row])
        return has_top or (self.probe_ids is not None and len(self.probe_ids[row]) > 0)


@dataclass(frozen=True, kw_only=True)
class Alternatives:
    """Natural log probabilities of tokens that might have come at n positions of one row, under the plain softmax.

    NaN where the position is the first of a context.

    Attributes:
        top_ids: (n, k) int64, the likeliest first.
        top_logprobs: (n, k) float32.
        probe_logprobs: (n, m) float32, of the ids that were asked for.
    """

    top_ids: NDArray[np.int64]
    top_logprobs: NDArray[np.float32]
    probe_logprobs: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class StepOutput:
    """What one pass gave.

    Attributes:
        token_ids: (B,) int64 drawn tokens, -1 where nothing was drawn.
        logprobs: (B,) float32 natural log probability of the drawn tokens under the plain softmax; NaN: not wanted.
        input_logprobs: For each row None, or float32 log probabilities of its new tokens from logprob_starts on, and of
            the one in next_ids; the entry of a token at position 0 is NaN.
        alternatives: For each row None, or those of the drawn token (n = 1); None: of no row.
        input_alternatives: For each row None, or those of the positions of `input_logprobs`; None: of no row.
        hidden_states: For each row None, or (n, C) float32 of its new tokens from hidden_starts on; None: of no row.
        failures: For each row None, or why its custom processor gave no logits to draw from; None: of no row.
        vectors: For each row None, or (size,) float32: the sum of the hidden states of its span, or what the model's
            head makes of it; None: of no row.
    """

    token_ids: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    input_logprobs: tuple[NDArray[np.float32] | None, ...]
    alternatives: tuple[Alternatives | None, ...] | None = None
    input_alternatives: tuple[Alternatives | None, ...] | None = None
    hidden_states: tuple[NDArray[np.float32] | None, ...] | None = None
    failures: tuple[str | None, ...] | None = None
    vectors: tuple[NDArray[np.float32] | None, ...] | None = None
