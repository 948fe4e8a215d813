"""Random turns, branches, aborts, pauses and flushes against a naive model: each turn keeps all of its tokens."""

import random
from dataclasses import dataclass, field

import pytest

from fakes.scripted_executor import next_token
from sgl_runtime.ipc.messages import (
    AbortRequest,
    CloseSessionRequest,
    ContinueRequest,
    ControlReply,
    FlushCacheReply,
    FlushCacheRequest,
    OpenSessionRequest,
    PauseRequest,
    TokenDelta,
    TokenizedRequest,
)
from sgl_runtime.ipc.request_parts import SessionTurn
from sgl_runtime.sampling_params import SamplingParams

CONTEXT = 96


@dataclass
class Turn:
    session: str | None
    parent: str | None
    prompt: list[int]
    output: list[int] = field(default_factory=list)
    end: str | None = None


class Model:
    """What the scheduler is asked, and what it must answer."""

    def __init__(self, bench, rng: random.Random) -> None:
        self.scheduler = bench.scheduler
        self.rng = rng
        self.turns: dict[str, Turn] = {}
        self.sessions: dict[str, list[str]] = {}
        self.is_paused = False
        self.num_made = 0
        self.num_refused = 0

    def act(self) -> None:
        choice = self.rng.random()
        if choice < 0.25:
            self.begin()
        elif choice < 0.30:
            self.open_or_close()
        elif choice < 0.36:
            self.abort()
        elif choice < 0.38:
            self.pause()
        elif choice < 0.44:
            self.resume()
        elif choice < 0.46:
            self.flush()
        elif self.scheduler.has_work():
            self.take(self.scheduler.step())

    def begin(self) -> None:
        self.num_made += 1
        rid = f"r{self.num_made}"
        own = [self.rng.randrange(250) for _ in range(self.rng.choice([1, 2, 3, 20]))]
        turn, session = Turn(None, None, own), None
        max_new = self.rng.choice([0, 1, 4, 12])
        if self.sessions and self.rng.random() < 0.8:
            session = self.turn_params(turn, own, room=CONTEXT - (max_new > 0))
        self.turns[rid] = turn
        message = TokenizedRequest(
            rid=rid,
            input_ids=own,
            sampling=SamplingParams(max_new_tokens=max_new, temperature=0.0),
            session=session,
        )
        self.take(self.scheduler.accept(message))
        if turn.end == "refused":
            self.num_refused += 1
        elif turn.session is not None:
            self.sessions[turn.session].append(rid)

    def turn_params(self, turn: Turn, own: list[int], *, room: int) -> SessionTurn:
        """Choose how to go on in a session; afterwards `turn` says what the prompt must be."""
        turn.session = self.rng.choice(list(self.sessions))
        rids = self.sessions[turn.session]
        rid = self.rng.choice(rids) if rids and self.rng.random() < 0.6 else None
        replace, drop = self.rng.random() < 0.2, self.rng.random() < 0.2
        offset = self.rng.choice([None, None, -1, 5])
        turn.parent = rid if rid is not None else rids[-1] if rids and not replace else None
        front: list[int] = []
        if turn.parent is not None:
            parent = self.turns[turn.parent]
            front = parent.prompt + ([] if drop else parent.output)
            front = front if offset is None else front[:offset]
        turn.prompt = front + own
        may_run = turn.parent is None or replace or self.turns[turn.parent].end is not None
        if not may_run or len(turn.prompt) > room:
            turn.end = "to be refused"
        elif replace:
            kept = [] if turn.parent is None else [name for name in rids if not self.follows(name, turn.parent)]
            self.sessions[turn.session] = kept
        return SessionTurn(id=turn.session, rid=rid, offset=offset, replace=replace, drop_previous_output=drop)

    def follows(self, name: str, other: str) -> bool:
        parent = self.turns[name].parent
        while parent is not None and parent != other:
            parent = self.turns[parent].parent
        return parent == other

    def take(self, outputs) -> None:
        for delta in outputs:
            if not isinstance(delta, TokenDelta):
                continue
            turn = self.turns[delta.rid]
            if delta.prompt_ids is not None:
                assert delta.prompt_ids == turn.prompt, delta.rid
            for token in delta.new_ids:
                assert token == next_token(turn.prompt + turn.output, 256), delta.rid
                turn.output.append(token)
            if delta.finish is not None:
                if turn.end == "to be refused":
                    assert delta.finish.code in ("invalid_request", "context_length_exceeded")
                    turn.end = "refused"
                    continue
                assert turn.end is None, f"{delta.rid} ends twice"
                assert delta.finish.code is None, delta.finish
                turn.end = delta.finish.type

    def ask(self, message):
        *deltas, reply = self.scheduler.accept(message)
        self.take(deltas)
        return reply

    def open_or_close(self) -> None:
        if len(self.sessions) < 4:
            self.num_made += 1
            name = f"s{self.num_made}"
            assert self.ask(OpenSessionRequest(request_id="o", session_id=name, capacity_bytes=10_000)).code is None
            self.sessions[name] = []
        else:
            name = self.rng.choice(list(self.sessions))
            del self.sessions[name]
            assert self.ask(CloseSessionRequest(request_id="c", session_id=name)).code is None

    def abort(self) -> None:
        live = [rid for rid, turn in self.turns.items() if turn.end is None]
        if live:
            rid = self.rng.choice(live)
            assert self.ask(AbortRequest(request_id="a", rid=rid)).rids == [rid]
            assert self.turns[rid].end == "abort"

    def pause(self) -> None:
        mode = self.rng.choice(["abort", "retract", "in_place"])
        assert isinstance(self.ask(PauseRequest(request_id="p", mode=mode)), ControlReply)
        self.is_paused = True

    def resume(self) -> None:
        self.ask(ContinueRequest(request_id="p"))
        self.is_paused = False

    def flush(self) -> None:
        running = self.scheduler.stats()["num_running"]
        waiting = self.scheduler.stats()["num_waiting"]
        reply = self.ask(FlushCacheRequest(request_id="f"))
        assert isinstance(reply, FlushCacheReply)
        assert reply.success == (not running and (self.is_paused or not waiting))

    def finish(self) -> None:
        self.resume()
        while self.scheduler.has_work():
            self.take(self.scheduler.step())
        self.scheduler.check()
        assert all(turn.end is not None for turn in self.turns.values())
        stats = self.scheduler.stats()
        assert stats["num_running"] == stats["num_waiting"] == 0


SIZES = [pytest.param(400, id="short"), pytest.param(25_000, id="long", marks=pytest.mark.slow)]


@pytest.mark.parametrize("steps", SIZES)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("page_size", [1, 16])
def test_every_turn_has_its_prompt_and_output_and_no_slot_is_lost(make_bench, steps, overlap, page_size):
    for seed in range(3):
        bench = make_bench(
            num_slots=208,
            context=CONTEXT,
            max_running=5,
            overlap=overlap,
            chunked_prefill_size=16,
            cache={"page_size": page_size},
            enable_mixed_chunk=bool(seed % 2),
        )
        model = Model(bench, random.Random(seed))
        for _ in range(steps):
            model.act()
        model.finish()
        assert model.num_refused > 0
