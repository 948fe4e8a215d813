"""Sessions in the scheduler: what a turn's prompt becomes, and what ends with a session."""

import numpy as np
import pytest

from fakes.scripted_executor import next_token
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.ipc.messages import (
    AbortRequest,
    CloseSessionRequest,
    ControlReply,
    FinishReason,
    OpenSessionRequest,
    StatsRequest,
    TokenDelta,
    TokenizedRequest,
)
from sgl_runtime.ipc.request_parts import SessionTurn
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.scheduler.sessions import Sessions


def continuation(ids: list[int], max_new: int) -> list[int]:
    out: list[int] = []
    for _ in range(max_new):
        out.append(next_token(ids + out, 256))
    return out


class Chat:
    """One scheduler and a session in it."""

    def __init__(self, bench, *, capacity: int = 10_000) -> None:
        self.scheduler, self.executor = bench.scheduler, bench.executor
        self.prompts: dict[str, list[int]] = {}
        self.outputs: dict[str, list[int]] = {}
        self.ends: dict[str, FinishReason] = {}
        self.cached: dict[str, int] = {}
        self.open("s", capacity=capacity)

    def open(self, session_id: str, *, capacity: int = 10_000, timeout_s: float | None = None) -> ControlReply:
        message = OpenSessionRequest(
            request_id="o", session_id=session_id, capacity_bytes=capacity, timeout_s=timeout_s
        )
        (reply,) = self.scheduler.accept(message)
        return reply

    def close(self, session_id: str = "s") -> ControlReply:
        (reply,) = self.scheduler.accept(CloseSessionRequest(request_id="c", session_id=session_id))
        return reply

    def begin(self, name: str, ids: list[int], *, max_new: int = 4, num_bos: int = 0, **params: object) -> None:
        message = TokenizedRequest(
            rid=name,
            input_ids=ids,
            sampling=SamplingParams(max_new_tokens=max_new, temperature=0.0),
            session=SessionTurn(**{"id": "s", "num_bos": num_bos, **params}),
        )
        self.take(self.scheduler.accept(message))

    def say(self, name: str, ids: list[int], **options: object) -> list[int]:
        """A turn from begin to end; its output."""
        self.begin(name, ids, **options)
        self.run()
        return self.outputs.get(name, [])

    def run(self) -> None:
        while self.scheduler.has_work():
            self.take(self.scheduler.step())
        self.scheduler.check()

    def take(self, outputs) -> None:
        for delta in outputs:
            if not isinstance(delta, TokenDelta):
                continue
            if delta.prompt_ids is not None:
                self.prompts[delta.rid] = delta.prompt_ids
            self.outputs.setdefault(delta.rid, []).extend(delta.new_ids)
            self.cached[delta.rid] = delta.cached_tokens
            if delta.finish is not None:
                self.ends[delta.rid] = delta.finish


@pytest.fixture
def chat(make_bench) -> Chat:
    return Chat(make_bench())


def test_turns_follow_the_latest_and_reuse_its_keys_and_values(chat):
    first = chat.say("a", [1, 2, 3])
    second = chat.say("b", [4, 5])
    assert chat.prompts["b"] == [1, 2, 3, *first, 4, 5]
    assert second == continuation(chat.prompts["b"], 4)
    # All but the last output token, whose keys and values nobody has computed.
    assert chat.cached["b"] == 6
    chat.say("c", [6])
    assert chat.prompts["c"] == [*chat.prompts["b"], *second, 6]


def test_offset_cuts_what_is_kept(chat):
    first = chat.say("a", [1, 2, 3])
    chat.say("b", [9], rid="a", offset=-1)
    chat.say("c", [9], rid="a", offset=2)
    chat.say("d", [9], rid="a", offset=-100)
    chat.say("e", [9], rid="a", offset=100)
    assert chat.prompts["b"] == [1, 2, 3, *first[:-1], 9]
    assert chat.prompts["c"] == [1, 2, 9]
    assert chat.prompts["d"] == [9]
    assert chat.prompts["e"] == [1, 2, 3, *first, 9]


def test_the_output_of_a_turn_can_be_dropped(chat):
    chat.say("a", [1, 2, 3])
    chat.say("b", [9], drop_previous_output=True)
    assert chat.prompts["b"] == [1, 2, 3, 9]
    chat.say("c", [], rid="b", drop_previous_output=True, offset=-1)
    assert chat.prompts["c"] == [1, 2, 3]


def test_turns_branch_from_any_turn(chat):
    first = chat.say("a", [1, 2, 3])
    chat.say("b", [4])
    chat.say("c", [5], rid="a")
    deep = chat.say("d", [6], rid="c")
    assert chat.prompts["c"] == [1, 2, 3, *first, 5]
    assert chat.prompts["d"] == [*chat.prompts["c"], *chat.outputs["c"], 6]
    chat.say("e", [7], rid="d", offset=-1)
    assert chat.prompts["e"] == [*chat.prompts["d"], *deep[:-1], 7]


def test_replacing_forgets_the_turns_that_follow(chat):
    chat.say("a", [1, 2, 3])
    chat.say("b", [4], rid="a")
    chat.say("c", [5], rid="b")
    chat.say("d", [6], rid="a", replace=True)
    for name in ("b", "c"):
        chat.say(f"after {name}", [7], rid=name)
        assert chat.ends[f"after {name}"].code == "invalid_request"
        assert chat.ends[f"after {name}"].param == "session_params.rid"
    chat.say("e", [8], rid="d")
    assert chat.prompts["e"] == [*chat.prompts["d"], *chat.outputs["d"], 8]
    chat.say("f", [9], replace=True)
    assert chat.prompts["f"] == [9]
    chat.say("g", [9], rid="a")
    assert chat.ends["g"].code == "invalid_request"


def test_replacing_ends_a_turn_that_runs_and_goes_on_from_what_it_has(chat):
    chat.begin("a", [1, 2, 3], max_new=50)
    for _ in range(4):
        chat.take(chat.scheduler.step())
    chat.say("b", [9], rid="a", replace=True)
    assert chat.ends["a"].type == "abort"
    assert chat.ends["a"].code is None
    assert len(chat.outputs["a"]) in (3, 4)
    assert chat.prompts["b"] == [1, 2, 3, *chat.outputs["a"], 9]
    assert chat.outputs["b"] == continuation(chat.prompts["b"], 4)


def test_a_turn_cannot_follow_one_that_runs(chat):
    chat.begin("a", [1], max_new=3)
    chat.begin("b", [2])
    assert "has not ended" in chat.ends["b"].message
    chat.run()
    chat.say("c", [2])
    assert chat.prompts["c"] == [1, *chat.outputs["a"], 2]


def test_an_aborted_turn_keeps_what_it_generated(chat):
    chat.begin("a", [1, 2], max_new=50)
    for _ in range(4):
        chat.take(chat.scheduler.step())
    chat.take(chat.scheduler.accept(AbortRequest(request_id="x", rid="a")))
    chat.run()
    chat.say("b", [9])
    assert chat.prompts["b"] == [1, 2, *chat.outputs["a"], 9]


def test_the_token_that_begins_a_sequence_is_left_out_of_later_turns(chat):
    chat.say("a", [250, 1], num_bos=1)
    chat.say("b", [250, 2], num_bos=1)
    assert chat.prompts["a"] == [250, 1]
    assert chat.prompts["b"] == [250, 1, *chat.outputs["a"], 2]


@pytest.mark.parametrize("session_id", ["s", "other"])
def test_opening_twice_is_refused(chat, session_id):
    assert (chat.open(session_id).code is not None) == (session_id == "s")


def test_an_unknown_session_is_an_error_of_that_request_alone(chat):
    chat.begin("good", [1, 2])
    chat.begin("bad", [1], id="nowhere")
    chat.run()
    assert chat.ends["bad"].param == "session_params.id"
    assert chat.outputs["good"] == continuation([1, 2], 4)
    assert chat.close("nowhere").code == "invalid_request"


def test_closing_with_a_running_turn_lets_it_end(chat):
    chat.begin("a", [1, 2], max_new=6)
    chat.take(chat.scheduler.step())
    assert chat.close().message == "1 turns forgotten, 1 of them still run"
    assert chat.close().code == "invalid_request"
    chat.run()
    assert chat.outputs["a"] == continuation([1, 2], 6)
    chat.say("b", [3])
    assert chat.ends["b"].param == "session_params.id"


def test_the_whole_prompt_must_fit_the_context(make_bench):
    chat = Chat(make_bench(context=16))
    chat.say("a", [1] * 8)
    chat.say("b", [2] * 4)
    assert chat.ends["b"].code == "context_length_exceeded"
    assert "16 tokens" in chat.ends["b"].message
    chat.say("c", [2] * 3, max_new=5)
    assert len(chat.prompts["c"]) == 15
    assert len(chat.outputs["c"]) == 1


def test_the_capacity_counts_bytes_of_text(make_bench):
    chat = Chat(make_bench(), capacity=9)
    chat.say("a", [1] * 4)
    chat.say("b", [2])
    chat.say("c", [2])
    assert "b" in chat.prompts
    assert chat.ends["c"].code == "context_length_exceeded"
    assert "capacity_of_str_len is 9" in chat.ends["c"].message


def test_a_repeated_rid_is_refused(chat):
    chat.say("a", [1])
    chat.say("a", [2])
    assert chat.ends["a"].param == "rid"


def test_log_probabilities_begin_anywhere_in_the_whole_prompt(chat):
    first = chat.say("a", [1, 2, 3])
    message = TokenizedRequest(
        rid="b",
        input_ids=[9, 8],
        sampling=SamplingParams(max_new_tokens=1, temperature=0.0),
        return_logprob=True,
        logprob_start_len=5,
        session=SessionTurn(id="s"),
    )
    chat.scheduler.accept(message)
    deltas = [delta for delta in chat.scheduler.step() if isinstance(delta, TokenDelta)]
    assert len(deltas[0].input_logprobs) == len([1, 2, 3, *first, 9, 8]) - 5


def test_sessions_that_idle_are_closed_and_their_number_is_bounded():
    now = [0.0]
    sessions = Sessions(
        max_sessions=2, context_length=64, token_lens=np.ones(256, dtype=np.int64), clock=lambda: now[0]
    )

    def open_session(session_id: str, timeout_s: float | None) -> str | None:
        message = OpenSessionRequest(request_id="o", session_id=session_id, capacity_bytes=99, timeout_s=timeout_s)
        return sessions.open(message).code

    assert open_session("a", 10.0) is None
    assert open_session("b", None) is None
    assert open_session("c", 5.0) == "overloaded"
    now[0] = 10.5
    assert open_session("c", 5.0) is None
    assert sessions.num_open == 2


def test_a_session_holds_so_many_turns():
    sessions = Sessions(max_sessions=1, context_length=64, token_lens=np.ones(256, dtype=np.int64), max_turns=3)
    sessions.open(OpenSessionRequest(request_id="o", session_id="s", capacity_bytes=99))

    def join(name: str, **params: object) -> None:
        sampling = SamplingParams(max_new_tokens=0)
        session = SessionTurn(id="s", **params)
        sessions.join(TokenizedRequest(rid=name, input_ids=[1], sampling=sampling, session=session))

    for rid in "abc":
        join(rid)
    with pytest.raises(InvalidRequestError, match="3 turns"):
        join("d")
    # Nothing follows the latest turn, so nothing is forgotten for this one.
    with pytest.raises(InvalidRequestError, match="3 turns"):
        join("d", rid="c", replace=True)
    join("d", rid="a", replace=True)
    join("e")


def test_the_number_of_sessions_is_a_counter(chat):
    (reply,) = chat.scheduler.accept(StatsRequest(request_id="q"))
    assert reply.stats["num_sessions"] == 1
