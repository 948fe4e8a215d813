import threading
from typing import Any

import pytest

from fakes.scripted_scheduler import ScriptedScheduler
from sgl_runtime.ipc.messages import Heartbeat, SchedulerInput, StatsReply, StatsRequest, TokenDelta, TokenizedRequest
from sgl_runtime.ipc.thread_inbox import ThreadInbox
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.serving.pulse import Pulse
from sgl_runtime.serving.scheduler_loop import SchedulerLoop


def request(rid: str) -> TokenizedRequest:
    return TokenizedRequest(rid=rid, input_ids=[*b"say:ab"], sampling=SamplingParams(max_new_tokens=9))


def run_until(scheduler: Any, messages: list[SchedulerInput], is_enough: Any) -> list[Any]:
    """Run a loop in this thread until what it delivered is enough."""
    inbox: ThreadInbox[SchedulerInput] = ThreadInbox()
    inbox.put(messages)
    delivered: list[Any] = []
    loop = SchedulerLoop(scheduler, inbox=inbox, deliver=delivered.extend, begin_turn=lambda: None)
    loop.run(lambda: is_enough(delivered))
    return delivered


def test_messages_in_passes_out_and_a_check_when_idle() -> None:
    scheduler = ScriptedScheduler()

    def is_enough(delivered: list[Any]) -> bool:
        return scheduler.num_checks > 0

    delivered = run_until(scheduler, [request("a"), StatsRequest(request_id="q")], is_enough)
    assert isinstance(delivered[1], StatsReply)
    ids = [token_id for message in delivered if isinstance(message, TokenDelta) for token_id in message.new_ids]
    assert bytes(ids[:2]) == b"ab"
    # Once when it rested, once at its end.
    assert scheduler.num_checks == 2


def test_failed_idle_check_is_logged_and_the_loop_goes_on(
    caplog: pytest.LogCaptureFixture, failed_idle_checks: list[str]
) -> None:
    class Leaking(ScriptedScheduler):
        def check(self) -> None:
            super().check()
            raise AssertionError("3 slots leaked")

    scheduler = Leaking()
    run_until(scheduler, [request("a")], lambda delivered: scheduler.num_checks > 0)
    assert "3 slots leaked" in caplog.text
    assert "3 slots leaked" in failed_idle_checks[0]
    failed_idle_checks.clear()


def test_pulse_beats_while_a_turn_lasts_and_stops_when_it_lasts_too_long() -> None:
    beats: list[Heartbeat] = []
    first = threading.Event()

    def send(heartbeat: Heartbeat) -> None:
        beats.append(heartbeat)
        first.set()

    pulse = Pulse(send, max_turn_s=60.0)
    pulse.start()
    assert first.wait(10)
    pulse.stop()
    hung = Pulse(beats.append, max_turn_s=-1.0)
    count = len(beats)
    hung.start()
    hung.stop()
    assert len(beats) == count
