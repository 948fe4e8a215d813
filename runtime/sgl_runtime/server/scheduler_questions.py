"""SchedulerQuestions: messages to the scheduler that it answers, each with one caller who waits."""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from sgl_runtime.errors import ERRORS_BY_CODE, SglRuntimeError
from sgl_runtime.ipc.messages import (
    AbortReply,
    AbortRequest,
    CacheEventsReply,
    CacheEventsRequest,
    CloseSessionRequest,
    ContinueRequest,
    ControlReply,
    FlushCacheReply,
    FlushCacheRequest,
    OpenSessionRequest,
    PauseMode,
    PauseRequest,
    ProfileRequest,
    SchedulerInput,
    SchedulerQuestion,
    SchedulerReply,
    StatsReply,
    StatsRequest,
)


class SchedulerQuestions:
    """Asks and waits; any number of questions may be open, and answers come in any order.

    Args:
        send: Queues messages for the scheduler.
    """

    def __init__(self, send: Callable[[Sequence[SchedulerInput]], None]) -> None:
        self._send = send
        self._open: dict[str, asyncio.Future[Any]] = {}
        self._failure: SglRuntimeError | None = None

    def answer(self, reply: SchedulerReply) -> None:
        """Wake whoever asked; nobody may be there any more."""
        question = self._open.get(reply.request_id)
        if question is not None and not question.done():
            question.set_result(reply)

    def refuse(self, error: SglRuntimeError) -> None:
        """Take no more questions; those that are open may still be answered."""
        self._failure = error

    def fail(self, error: SglRuntimeError) -> None:
        """End every wait, now and from now on, with an error."""
        self._failure = error
        for question in self._open.values():
            if not question.done():
                question.set_exception(error)

    async def stats(self) -> dict[str, Any]:
        """The scheduler's counters."""
        reply: StatsReply = await self._ask(StatsRequest(request_id=_request_id()))
        return reply.stats

    async def cache_events(self, since: int, limit: int) -> dict[str, Any] | None:
        """What happened in the prefix cache; None where nothing of it is kept."""
        reply: CacheEventsReply = await self._ask(
            CacheEventsRequest(request_id=_request_id(), since=since, limit=limit)
        )
        return reply.page

    async def abort(self, rid: str, *, abort_all: bool = False) -> list[str]:
        """End one request or all, wherever they stand; the rids of those that were there."""
        reply: AbortReply = await self._ask(AbortRequest(request_id=_request_id(), rid=rid, abort_all=abort_all))
        return reply.rids

    async def flush_cache(self, *, until_idle: asyncio.Event, timeout_s: float) -> FlushCacheReply:
        """Empty the prefix cache.

        Args:
            until_idle: Set while no request runs.
            timeout_s: How long to wait for that, if need be several times.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            reply: FlushCacheReply = await self._ask(FlushCacheRequest(request_id=_request_id()))
            left_s = deadline - time.monotonic()
            if reply.success or left_s <= 0.0 or until_idle.is_set():
                return reply
            try:
                await asyncio.wait_for(until_idle.wait(), left_s)
            except TimeoutError:
                return reply

    async def open_session(self, session_id: str, *, capacity_bytes: int, timeout_s: float | None) -> None:
        """Begin a session.

        Raises:
            SglRuntimeError: the id is taken, or there are too many sessions.
        """
        await self._control(
            OpenSessionRequest(
                request_id=_request_id(), session_id=session_id, capacity_bytes=capacity_bytes, timeout_s=timeout_s
            )
        )

    async def close_session(self, session_id: str) -> str:
        """Forget a session; what was forgotten, in words.

        Raises:
            InvalidRequestError: there is none of this id.
        """
        return await self._control(CloseSessionRequest(request_id=_request_id(), session_id=session_id))

    async def pause(self, mode: PauseMode) -> str:
        """Run no pass until `resume`; what became of the requests, in words."""
        return await self._control(PauseRequest(request_id=_request_id(), mode=mode))

    async def resume(self) -> str:
        """Run passes again; in words what goes on."""
        return await self._control(ContinueRequest(request_id=_request_id()))

    async def start_profile(
        self,
        *,
        output_dir: str,
        num_steps: int | None,
        activities: tuple[str, ...],
        record_shapes: bool,
        with_stack: bool,
    ) -> str:
        """Record where the time of passes goes; in words what will be recorded.

        Raises:
            InvalidRequestError: a profile is being recorded, or the folder cannot be made.
        """
        return await self._control(
            ProfileRequest(
                request_id=_request_id(),
                output_dir=output_dir,
                num_steps=num_steps,
                activities=activities,
                record_shapes=record_shapes,
                with_stack=with_stack,
            )
        )

    async def stop_profile(self) -> str:
        """Write what was recorded; in words where.

        Raises:
            InvalidRequestError: nothing is being recorded, or the file cannot be written.
        """
        return await self._control(ProfileRequest(request_id=_request_id()))

    async def _control(self, message: SchedulerQuestion) -> str:
        reply: ControlReply = await self._ask(message)
        if reply.code is not None:
            raise ERRORS_BY_CODE[reply.code](reply.message, param=reply.param)
        return reply.message

    async def _ask(self, message: SchedulerQuestion) -> Any:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        question = asyncio.get_running_loop().create_future()
        self._open[message.request_id] = question
        try:
            self._send([message])
            return await question
        finally:
            del self._open[message.request_id]


def _request_id() -> str:
    return uuid.uuid4().hex
