"""Req: one live request inside the scheduler."""

import time
from enum import Enum, auto
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.cache.prefix_cache import PrefixPlace
from sgl_runtime.grammar.base import GrammarState
from sgl_runtime.ipc.messages import FinishReason, GrammarReport, TokenizedRequest
from sgl_runtime.scheduler.logit_rules import LogitRules
from sgl_runtime.scheduler.stop_search import stop_search
from sgl_runtime.scheduler.token_sequence import TokenSequence


class ReqState(Enum):
    """Where a Req stands; only the named methods of Req move it."""

    COMPILING = auto()
    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


TURN = attrgetter("turn")
"""Key that sorts requests by their turn."""


class Req:
    """A request from accept to finish.

    Args:
        message: What the tokenizer manager sent.
        seed: Seed of its draws.
        arrival: How many requests came before it.
        logit_rules: What its penalties and biases do to logits; None without any.

    Attributes:
        max_len: Most tokens of prompt and output.
        turn: Whose turn it is: requests run in the order of these, the smallest first.
        tokens: Prompt and output ids.
        row: Row in the ReqToTokenPool while running.
        num_computed: Positions whose keys and values the passes that were planned compute, while running.
        num_drawing: Tokens that passes which were planned draw for it, and that are not known yet.
        next_logprob: Prompt position from which on log probabilities are still to be asked of a pass.
        input_logprobs: What passes over pieces of the prompt gave of them so far.
        next_hidden: Position from which on hidden states are still to be asked of a pass.
        hidden_states: Those that passes gave and that were not sent yet.
        pooled: Sum of the hidden states that its vector is made of, as far as passes gave them.
        given_rows: (n, C) embeddings of the prompt; None for a prompt of ids.
        num_shared: First positions whose slots belong to the prefix cache, held by the lock on `node`.
        node: Locked node of the prefix cache while running.
        slots_changed: The device's slot table must be told the row's first slots anew.
        place: Where its tokens led in the prefix cache when last looked for.
        cached_len: Prompt tokens that were found in the cache when the request first ran.
        queue_time: Seconds from its arrival in the API until a pass was first planned for it.
        has_started, has_run: Whether a pass was planned for it, and whether one has given its first token.
        grammar: Cursor of its constraint, None without one.
        grammar_report: How its constraint was compiled, None without one.
        due: How many requests are to be admitted in all before its turn has come whatever the policy; None until it
            first waits.
        device_grammar: Name of its automaton on the device, None where the host makes its masks, if any.
        grammar_moved: The device must be told where it stands in the automaton, or that its row is free now.
        num_forced: Output tokens that its grammar forced, and that no pass drew.
        is_forced: Whether its grammar leaves one token alone for the draw that comes next.
        stops: Looks for stop strings and regexes in the output; None without any.
        failure: Set when the request cannot go on; it ends with this reason after the step.
    """

    def __init__(
        self, message: TokenizedRequest, *, seed: int, arrival: int, logit_rules: LogitRules | None = None
    ) -> None:
        assert message.sampling.max_new_tokens is not None, "max_new_tokens is resolved before a request is sent"
        self.message = message
        self.rid = message.rid
        self.sampling = message.sampling
        self.seed = seed
        self.arrival = arrival
        self.turn = -message.priority, arrival
        self.logit_rules = logit_rules
        self.max_new_tokens = message.sampling.max_new_tokens
        self.prompt_len = message.num_prompt_tokens
        self.max_len = self.prompt_len + self.max_new_tokens
        self.given_rows = given_rows(message)
        # Where embeddings are given, ids only hold their places.
        prompt = message.input_ids if self.given_rows is None else [0] * self.prompt_len
        self.tokens = TokenSequence(prompt, max_new=self.max_new_tokens)
        self.state = ReqState.WAITING
        self.finish_reason: FinishReason | None = None
        self.row = -1
        self.num_computed = 0
        self.num_drawing = 0
        self.next_logprob = 0
        self.input_logprobs: dict[str, list[Any]] = {}
        self.next_hidden = 0
        self.hidden_states: list[NDArray[np.float32]] = []
        self.pooled: NDArray[np.float32] | None = None
        self.num_shared = 0
        self.node: Any = None
        self.slots_changed = False
        self.place: PrefixPlace | None = None
        self.cached_len = 0
        self.due: int | None = None
        self.queue_time = 0.0
        self.has_started = False
        self.has_run = False
        self.grammar: GrammarState | None = None
        self.grammar_report: GrammarReport | None = None
        self.device_grammar: int | None = None
        self.grammar_moved = False
        self.num_forced = 0
        self.is_forced = False
        self.stops = stop_search(message.sampling.stop, message.stop_automata)
        self.failure: FinishReason | None = None

    @property
    def num_output(self) -> int:
        """Generated tokens."""
        return len(self.tokens) - self.prompt_len

    @property
    def num_remaining(self) -> int:
        """Tokens that may still be generated."""
        return self.max_new_tokens - self.num_output

    @property
    def num_planned(self) -> int:
        """Tokens, with those that are being drawn."""
        return len(self.tokens) + self.num_drawing

    @property
    def num_uncomputed(self) -> int:
        """Tokens whose keys and values no pass computes yet: one while it decodes, more of a prompt or forced text."""
        return len(self.tokens) + self.num_drawing - self.num_computed

    @property
    def num_to_compute(self) -> int:
        """`num_uncomputed`, but 0 where no further pass is to be planned: it ends when those under way are applied."""
        planned = len(self.tokens) + self.num_drawing
        if planned >= self.max_len and (self.max_new_tokens or self.num_computed == self.prompt_len):
            return 0
        return planned - self.num_computed

    @property
    def is_past_prompt(self) -> bool:
        """Whether its next pass computes nothing of its prompt."""
        return self.num_computed >= self.prompt_len

    @property
    def is_decoding(self) -> bool:
        """Whether its next pass computes one token, and nothing of its prompt."""
        return self.is_past_prompt and self.num_uncomputed == 1

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self.state is ReqState.FINISHED

    @property
    def match_limit(self) -> int:
        """Most tokens that may be taken from the prefix cache.

        The last token is never matched: its logits are needed.  Where log probabilities of the prompt are wanted, the
        token before the first of them has to be computed too; hidden states are those of computed tokens, and so is
        what a vector is made of.
        """
        if not self.is_shareable or self.message.pooling in ("mean", "cls"):
            return 0
        limit = len(self.tokens) - 1
        if self.wants_input_logprobs:
            limit = min(limit, max(self.message.logprob_start_len - 1, 0))
        if self.message.return_hidden_states:
            limit = min(limit, self.next_hidden)
        return limit

    @property
    def is_shareable(self) -> bool:
        """Whether ids tell all of its tokens, so that the prefix cache may hold them."""
        return self.given_rows is None

    def append(self, token_id: int) -> None:
        """Add a generated token."""
        self.tokens.append(token_id)
        if self.logit_rules is not None:
            self.logit_rules.count(token_id)

    @property
    def wants_input_logprobs(self) -> bool:
        """Whether log probabilities of the prompt are still owed."""
        return self.message.return_logprob and self.message.logprob_start_len >= 0 and not self.has_run

    def start_compiling(self) -> None:
        """Wait for the grammar."""
        self._move(ReqState.WAITING, ReqState.COMPILING)

    def finish_compiling(self, grammar: GrammarState, report: GrammarReport) -> None:
        """The grammar is there; wait for a pass."""
        self._move(ReqState.COMPILING, ReqState.WAITING)
        self.grammar, self.grammar_report = grammar, report

    def start_running(self, *, row: int, node: Any, num_matched: int) -> None:
        """Join a batch with `num_matched` tokens from the prefix cache, whose node is locked."""
        self._move(ReqState.WAITING, ReqState.RUNNING)
        self.row, self.node = row, node
        self.num_computed = self.num_shared = num_matched
        self.slots_changed = True
        if not self.has_started:
            self.queue_time = max(0.0, time.monotonic() - self.message.arrival_time)
            self.cached_len = min(num_matched, self.prompt_len)
        if not self.has_run:
            self.next_logprob = self.message.logprob_start_len if self.wants_input_logprobs else self.prompt_len
            self.input_logprobs = {}
            self.pooled = None
        self.has_started = True

    def retract(self) -> None:
        """Go back to waiting; its row, slots and lock have been given back.

        A token that is being drawn for it still comes.
        """
        self._move(ReqState.RUNNING, ReqState.WAITING)
        self._forget_slots()

    def finish(self, reason: FinishReason) -> None:
        """End; row, slots and lock have been given back."""
        assert self.state is not ReqState.FINISHED, f"{self.rid}: finished twice"
        self.state, self.finish_reason = ReqState.FINISHED, reason
        self._forget_slots()

    def _forget_slots(self) -> None:
        self.row, self.node, self.place = -1, None, None
        self.num_computed = self.num_shared = 0

    def _move(self, origin: ReqState, target: ReqState) -> None:
        assert self.state is origin, f"{self.rid}: {target.name} while {self.state.name}"
        self.state = target


def given_rows(message: TokenizedRequest) -> NDArray[np.float32] | None:
    """(n, C) the embeddings that a request brings; None where it brings ids."""
    rows = message.input_embeds
    return None if rows is None else np.frombuffer(rows.data, dtype="<f4").reshape(-1, rows.size)
