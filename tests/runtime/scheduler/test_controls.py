"""Pausing, aborts in every state, flushes and the idle check."""

from collections.abc import Iterator

import pytest

from fakes.scripted_executor import next_token
from sgl_runtime.ipc.messages import (
    AbortReply,
    AbortRequest,
    ContinueRequest,
    ControlReply,
    FlushCacheReply,
    FlushCacheRequest,
    PauseRequest,
    TokenDelta,
    TokenizedRequest,
)
from sgl_runtime.sampling_params import SamplingParams


class Drive:
    def __init__(self, bench) -> None:
        self.scheduler = bench.scheduler
        self.outputs: dict[str, list[int]] = {}
        self.ends: dict[str, str] = {}
        self.prompts: dict[str, list[int]] = {}

    def begin(self, rid: str, ids: list[int], max_new: int = 6, **sampling: object) -> None:
        self.prompts[rid] = ids
        settings = SamplingParams(max_new_tokens=max_new, temperature=0.0, **sampling)
        self.take(self.scheduler.accept(TokenizedRequest(rid=rid, input_ids=ids, sampling=settings)))

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.take(self.scheduler.step())

    def run(self) -> None:
        while self.scheduler.has_work():
            self.step()
        self.scheduler.check()

    def take(self, outputs) -> None:
        for output in outputs:
            if isinstance(output, TokenDelta):
                self.outputs.setdefault(output.rid, []).extend(output.new_ids)
                if output.finish is not None:
                    assert output.rid not in self.ends, "two ends"
                    self.ends[output.rid] = output.finish.type

    def ask(self, message):
        *deltas, reply = self.scheduler.accept(message)
        self.take(deltas)
        return reply

    def pause(self, mode: str) -> ControlReply:
        return self.ask(PauseRequest(request_id="p", mode=mode))

    def resume(self) -> ControlReply:
        return self.ask(ContinueRequest(request_id="p"))

    def abort(self, rid: str) -> list[str]:
        reply = self.ask(AbortRequest(request_id="a", rid=rid))
        assert isinstance(reply, AbortReply)
        return reply.rids

    def flush(self) -> FlushCacheReply:
        return self.ask(FlushCacheRequest(request_id="f"))

    def expected(self, rid: str, max_new: int = 6) -> list[int]:
        out: list[int] = []
        for _ in range(max_new):
            out.append(next_token(self.prompts[rid] + out, 256))
        return out


@pytest.fixture(params=[False, True], ids=["plain", "overlap"])
def drive(make_bench, request) -> Iterator[Drive]:
    return Drive(make_bench(overlap=request.param, max_running=4))


def test_a_pause_in_place_stops_and_goes_on(drive):
    drive.begin("a", [1, 2, 3])
    drive.begin("b", [4, 5])
    drive.step(3)
    assert drive.pause("in_place").message == "paused with 2 running and 0 waiting requests"
    so_far = {rid: list(ids) for rid, ids in drive.outputs.items()}
    assert not drive.scheduler.has_work()
    drive.begin("c", [6])
    drive.step(3)
    assert drive.outputs == so_far
    drive.scheduler.check()
    assert drive.flush().success is False
    assert drive.resume().message == "goes on with 2 running and 1 waiting requests"
    drive.run()
    for rid in "abc":
        assert drive.outputs[rid] == drive.expected(rid), rid


def test_a_pause_with_retraction_frees_everything_and_changes_no_output(drive):
    drive.begin("a", [1, 2, 3])
    drive.begin("b", [4, 5])
    drive.step(3)
    assert drive.pause("retract").message == "paused with 0 running and 2 waiting requests"
    stats = drive.scheduler.stats()
    assert stats["num_running"] == 0
    assert stats["is_paused"] is True
    reply = drive.flush()
    assert reply.success, reply.message
    assert drive.scheduler.stats()["free_slots"] == stats["total_slots"]
    drive.resume()
    drive.run()
    for rid in "ab":
        assert drive.outputs[rid] == drive.expected(rid), rid


def test_a_pause_with_aborts_ends_everyone_and_holds_back_who_comes(drive):
    drive.begin("a", [1, 2, 3])
    drive.step(2)
    drive.begin("b", [4, 5], regex="[a-z]{3}")
    assert drive.pause("abort").message == "paused with 0 running and 0 waiting requests"
    assert drive.ends == {"a": "abort", "b": "abort"}
    drive.begin("c", [6])
    assert not drive.scheduler.has_work()
    drive.resume()
    drive.run()
    assert drive.outputs["c"] == drive.expected("c")


def test_continuing_what_is_not_paused_says_so(drive):
    assert drive.resume().message == "was not paused"


@pytest.mark.parametrize("mode", ["in_place", "retract"])
def test_requests_are_aborted_during_a_pause(drive, mode):
    drive.begin("a", [1, 2, 3], max_new=50)
    drive.begin("b", [4])
    drive.step(2)
    drive.pause(mode)
    assert drive.abort("a") == ["a"]
    assert drive.abort("a") == []
    drive.resume()
    drive.run()
    assert drive.ends == {"a": "abort", "b": "length"}
    assert drive.outputs["b"] == drive.expected("b")


def test_requests_are_aborted_wherever_they_stand(make_bench):
    drive = Drive(make_bench(max_running=1, chunked_prefill_size=64, context=400, num_slots=900))
    drive.begin("chunked", [7] * 150, max_new=3)
    drive.begin("waiting", [8], max_new=3)
    drive.begin("compiling", [9], max_new=3, regex="[a-z]+x")
    drive.begin("last", [1, 2])
    drive.step()
    assert drive.outputs.get("chunked", []) == []
    assert drive.abort("chunked") == ["chunked"]
    assert drive.abort("waiting") == ["waiting"]
    assert drive.abort("compiling") == ["compiling"]
    assert drive.abort("nobody") == []
    drive.run()
    assert drive.ends == {"chunked": "abort", "waiting": "abort", "compiling": "abort", "last": "length"}
    assert drive.outputs["last"] == drive.expected("last")
    assert drive.flush().success


def test_a_flush_says_how_many_requests_are_in_its_way(drive):
    drive.begin("a", [1, 2, 3])
    drive.step()
    reply = drive.flush()
    assert not reply.success
    assert "1 running and 0 waiting" in reply.message
    drive.run()
    assert drive.flush().success
    drive.begin("b", [1, 2, 3])
    drive.run()
    assert drive.outputs["b"] == drive.expected("b")
    assert drive.scheduler.stats()["cached_tokens_total"] == 0


def test_what_the_idle_check_finds_is_counted(make_bench):
    bench = make_bench()
    row = bench.scheduler._pools.rows.take()
    with pytest.raises(AssertionError, match="a row of the request table is lost"):
        bench.scheduler.check()
    assert bench.scheduler.stats()["failed_idle_checks_total"] == 1
    bench.scheduler._pools.rows.give_back(row)
