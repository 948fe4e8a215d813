"""Every message that crosses a process border, each with one sender and one receiver.

TokenizerManager -> Scheduler     TokenizedRequest, AbortRequest, and questions: flush, stats, sessions, pause, continue
Scheduler -> Detokenizer          TokenDelta, and replies and heartbeats that pass through unchanged
Detokenizer -> TokenizerManager   TextDelta, replies, Heartbeat
"""

from typing import Any, Literal

import msgspec

from sgl_runtime.ipc.request_parts import FloatRows, LogitProcessorCall, SessionTurn
from sgl_runtime.model_info import PoolingMethod
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.stops.stop_automaton import StopAutomaton

PauseMode = Literal["abort", "retract", "in_place"]


class TokenizedRequest(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A checked request with its prompt as ids.

    Attributes:
        rid: Request id, unique among live requests.
        input_ids: Prompt, at least one id; empty where `input_embeds` is the prompt.
        sampling: Checked settings; `max_new_tokens` is resolved, never None, and `n` is 1.
        priority: Larger ones run first among those that wait.
        extra_key: Requests of different keys share nothing in the prefix cache.
        stop_automata: The settings' stop regexes, compiled.
        return_logprob: Whether output log probabilities are wanted.
        logprob_start_len: First prompt position whose log probability is wanted; -1 for none.
        top_logprobs_num: How many of the likeliest tokens are wanted wherever a log probability is.
        token_ids_logprob: Ids whose log probabilities are wanted there besides.
        return_hidden_states: Whether the last hidden states of prompt and output are wanted.
        session: The session that it goes on in; its prompt then follows the tokens of an earlier turn.
        logit_processor: What changes its logits besides the settings; None for nothing.
        input_embeds: The prompt as embeddings, one row for each position; None for a prompt of ids.
        pooling: How the vector is made that is wanted in place of an output; None for a request that generates.
        segment_start: First position of the second text of a pair; -1 for a single text.
        arrival_time: `time.monotonic()` when the API received it.
    """

    rid: str
    input_ids: list[int]
    sampling: SamplingParams
    priority: int = 0
    extra_key: str | None = None
    stop_automata: tuple[StopAutomaton, ...] = ()
    return_logprob: bool = False
    logprob_start_len: int = -1
    top_logprobs_num: int = 0
    token_ids_logprob: tuple[int, ...] = ()
    return_hidden_states: bool = False
    session: SessionTurn | None = None
    logit_processor: LogitProcessorCall | None = None
    input_embeds: FloatRows | None = None
    pooling: PoolingMethod | None = None
    segment_start: int = -1
    arrival_time: float = 0.0

    @property
    def num_prompt_tokens(self) -> int:
        """Positions of the prompt."""
        return len(self.input_ids) if self.input_embeds is None else self.input_embeds.count


class AbortRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """End one request, or with `abort_all` every request, wherever it stands; an unknown rid is no error.

    The ended requests answer with a last `TokenDelta` (finish type "abort"); `request_id` is answered by `AbortReply`.
    """

    request_id: str
    rid: str = ""
    abort_all: bool = False


class FlushCacheRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Empty the prefix cache; answered by `FlushCacheReply`."""

    request_id: str


class OpenSessionRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Begin a session; answered by `ControlReply`.

    Attributes:
        session_id: Its id, not taken by another.
        capacity_bytes: Most bytes of text that a turn's prompt may hold.
        timeout_s: Idle seconds after which it is closed; None for never.
    """

    request_id: str
    session_id: str
    capacity_bytes: int
    timeout_s: float | None = None


class CloseSessionRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Forget a session and its turns; answered by `ControlReply`."""

    request_id: str
    session_id: str


class PauseRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Run no pass until `ContinueRequest`; answered by `ControlReply`.

    Attributes:
        mode: What becomes of the requests: `abort` ends them, `retract` sends those that run back to waiting,
            `in_place` leaves them where they are.
    """

    request_id: str
    mode: PauseMode


class ContinueRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Run passes again; answered by `ControlReply`."""

    request_id: str


class StatsRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Ask for the scheduler's counters; answered by `StatsReply`."""

    request_id: str


PROFILE_ACTIVITIES = ("CPU", "GPU")
"""What a profile may record."""


class ProfileRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Record where the time of passes goes, or write what was recorded; answered by `ControlReply`.

    Attributes:
        output_dir: Folder for the file; None to stop.
        num_steps: How many passes are recorded; None until it is stopped.
        activities: Some of `PROFILE_ACTIVITIES`.
        record_shapes: Whether shapes of tensors are recorded.
        with_stack: Whether the lines of code are recorded.
    """

    request_id: str
    output_dir: str | None = None
    num_steps: int | None = None
    activities: tuple[str, ...] = PROFILE_ACTIVITIES
    record_shapes: bool = False
    with_stack: bool = False


class CacheEventsRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Ask what happened in the prefix cache; answered by `CacheEventsReply`.

    Attributes:
        since: Number of the first event.
        limit: Most events.
    """

    request_id: str
    since: int
    limit: int


class FinishReason(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Why a request ended.

    Attributes:
        type: "stop" (end of sequence, stop, grammar complete), "length" or "abort".
        matched: For "stop" the token id or the text that matched; None when the grammar was complete.
        regex: The stop regex that matched, if it was one.
        message: For "abort" the reason.
        code: For an abort because of an error, the error's code; None when the client asked for it.
        param: The field of the request that the error is about, if one is.
    """

    type: Literal["stop", "length", "abort"]
    matched: int | str | None = None
    regex: str | None = None
    message: str | None = None
    code: str | None = None
    param: str | None = None


class GrammarReport(msgspec.Struct, frozen=True, array_like=True):
    """How a request's constraint was compiled.

    Attributes:
        compile_time: Seconds; 0.0 when it was found in the cache.
        backend: Which kind of grammar enforces it: fsm, llguidance or outlines.
        relaxed: JSON pointer of each keyword that is not enforced, and why; None for requests that are not lenient.
    """

    compile_time: float
    backend: str
    relaxed: list[tuple[str, str]] | None = None


class TokenAlternatives(msgspec.Struct, frozen=True, array_like=True):
    """Log probabilities of tokens that might have come at one position.

    Attributes:
        top: Log probability and id of the likeliest ones, in order.
        probes: Log probabilities of the ids that were asked for.
    """

    top: list[tuple[float, int]]
    probes: list[float]


class TokenDelta(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """New tokens of one request after one step.

    Attributes:
        rid: Request id.
        new_ids: Ids generated by this step; may be empty on an abort or for max_new_tokens 0.
        finish: Set on the last delta of the request.
        num_trimmed_ids: On the last delta: how many of the last ids are a stop token or end-of-sequence token and
            stay out of the text (0 or 1).
        prompt_tokens, cached_tokens: Counts of the prompt.
        queue_time: Seconds from the request's arrival in the API until a pass was first planned for it.
        grammar: How the constraint was compiled; None without one.
        forced_tokens: How many of all generated ids a grammar forced, without a pass for each.
        num_forced_ids: How many of the last of `new_ids` a grammar left no choice for, with a pass or without.
        output_logprobs: One per id of `new_ids`, when wanted.
        input_logprobs: For positions logprob_start_len .. prompt end, on the first delta when wanted; the entry of
            position 0 is None.
        output_alternatives, input_alternatives: For the same positions, when wanted; the entry of position 0 is None.
        prompt_ids: For a turn of a session, on the first delta: its whole prompt.
        hidden_states: Last hidden states of the next positions, when wanted: rows of float32.
        vector: On the last delta of a request with pooling: its one row.
    """

    rid: str
    new_ids: list[int]
    finish: FinishReason | None = None
    num_trimmed_ids: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    queue_time: float = 0.0
    grammar: GrammarReport | None = None
    forced_tokens: int = 0
    num_forced_ids: int = 0
    output_logprobs: list[float] | None = None
    input_logprobs: list[float | None] | None = None
    output_alternatives: list[TokenAlternatives] | None = None
    input_alternatives: list[TokenAlternatives | None] | None = None
    prompt_ids: list[int] | None = None
    hidden_states: FloatRows | None = None
    vector: FloatRows | None = None


class DetokenizeStart(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """How to decode a request; the scheduler sends it to the detokenizer when it accepts the request.

    Attributes:
        rid: Request id.
        stop, stop_automata: Stop strings and regexes; the detokenizer holds back what may become a match, and trims it.
        no_stop_trim: Keep the match.
        skip_special_tokens: Leave special tokens out.
    """

    rid: str
    stop: tuple[str, ...] = ()
    stop_automata: tuple[StopAutomaton, ...] = ()
    no_stop_trim: bool = False
    skip_special_tokens: bool = True


class TextDelta(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """What the API appends to a request's reply.

    Attributes:
        rid: Request id.
        text: Text to append (not cumulative).
        new_ids, finish, prompt_tokens, cached_tokens, queue_time, grammar, forced_tokens, num_forced_ids,
            output_logprobs, input_logprobs, output_alternatives, input_alternatives, prompt_ids, hidden_states,
            vector: As in `TokenDelta`.
        num_text_ids: On the last delta: how many of all output ids lie wholly inside the text.
        text_tail: On the last delta: the text that a stop string left over of the token that it cut.
    """

    rid: str
    text: str
    new_ids: list[int]
    finish: FinishReason | None = None
    num_text_ids: int = 0
    text_tail: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    queue_time: float = 0.0
    grammar: GrammarReport | None = None
    forced_tokens: int = 0
    num_forced_ids: int = 0
    output_logprobs: list[float] | None = None
    input_logprobs: list[float | None] | None = None
    output_alternatives: list[TokenAlternatives] | None = None
    input_alternatives: list[TokenAlternatives | None] | None = None
    prompt_ids: list[int] | None = None
    hidden_states: FloatRows | None = None
    vector: FloatRows | None = None


class FlushCacheReply(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Whether the prefix cache was emptied, and if not, why."""

    request_id: str
    success: bool
    message: str


class ControlReply(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """What came of a message about sessions or pauses.

    Attributes:
        message: In words.
        code: The code of the error if it failed.
        param: The field that the error is about, if one is.
    """

    request_id: str
    message: str
    code: str | None = None
    param: str | None = None


class AbortReply(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The rids that an `AbortRequest` ended."""

    request_id: str
    rids: list[str]


class StatsReply(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The scheduler's counters, as `/get_server_info` shows them."""

    request_id: str
    stats: dict[str, Any]


class CacheEventsReply(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Events of the prefix cache, as `/kv_events` shows them; None where none are kept."""

    request_id: str
    page: dict[str, Any] | None


class Heartbeat(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Sent by the scheduler at least every second while its loop turns."""

    time: float


SchedulerQuestion = (
    AbortRequest
    | FlushCacheRequest
    | OpenSessionRequest
    | CloseSessionRequest
    | PauseRequest
    | ContinueRequest
    | StatsRequest
    | ProfileRequest
    | CacheEventsRequest
)
SchedulerInput = TokenizedRequest | SchedulerQuestion
SchedulerReply = FlushCacheReply | ControlReply | AbortReply | StatsReply | CacheEventsReply
SchedulerOutput = DetokenizeStart | TokenDelta | SchedulerReply | Heartbeat
DetokenizerOutput = TextDelta | SchedulerReply | Heartbeat
