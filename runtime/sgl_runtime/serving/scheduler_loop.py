"""SchedulerLoop: messages in, one pass, messages out; the same in the scheduler process and in `Engine`."""

import logging
from collections.abc import Callable
from typing import Protocol

from sgl_runtime.ipc.messages import SchedulerInput, SchedulerOutput
from sgl_runtime.serving.factories import ServedScheduler

logger = logging.getLogger(__name__)

IDLE_WAIT_S = 0.5


class Inbox(Protocol):
    """Where the loop finds its messages."""

    def wait(self, timeout_s: float) -> None:
        """Return when a message is there or the time is over."""

    def drain(self) -> list[SchedulerInput]:
        """Every message that is there, without waiting."""


class SchedulerLoop:
    """Turns until it is told to stop.

    Args:
        scheduler: Does the work.
        inbox: Messages for it.
        deliver: Takes what goes to the detokenizer.
        begin_turn: Called as each turn begins.
    """

    def __init__(
        self,
        scheduler: ServedScheduler,
        *,
        inbox: Inbox,
        deliver: Callable[[list[SchedulerOutput]], None],
        begin_turn: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._inbox = inbox
        self._deliver = deliver
        self._begin_turn = begin_turn
        self._was_busy = False

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Turn until `should_stop`; it is asked once a turn."""
        while not should_stop():
            self._begin_turn()
            if not self._scheduler.has_work():
                self._rest()
            self._turn()
        self._check()

    def _turn(self) -> None:
        outputs: list[SchedulerOutput] = []
        for message in self._inbox.drain():
            outputs.extend(self._scheduler.accept(message))
        if self._scheduler.has_work():
            self._was_busy = True
            outputs.extend(self._scheduler.step())
        if outputs:
            self._deliver(outputs)

    def _rest(self) -> None:
        if self._was_busy:
            self._was_busy = False
            self._check()
        self._inbox.wait(IDLE_WAIT_S)

    def _check(self) -> None:
        try:
            self._scheduler.check()
        except AssertionError:
            # Lost slots make the server smaller, not wrong: it goes on, and the log says what was lost.
            logger.exception("idle check failed")
