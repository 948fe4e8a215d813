"""TokenizerManager: requests to ids and on to the scheduler; deltas back to whoever waits for them.

One for each API process.  Everything runs on one event loop; `send` must return at once.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from sgl_runtime.config import FeatureConfig
from sgl_runtime.errors import InvalidRequestError, OverloadedError, SglRuntimeError
from sgl_runtime.ipc.messages import (
    AbortRequest,
    DetokenizerOutput,
    FinishReason,
    FlushCacheReply,
    Heartbeat,
    SchedulerInput,
    TextDelta,
    TokenizedRequest,
)
from sgl_runtime.model_info import ModelInfo
from sgl_runtime.server.encode_prompts import EncodePrompts, refusal_to_generate
from sgl_runtime.server.generate_request import GenerateRequest
from sgl_runtime.server.generation_prompts import GenerationPrompts
from sgl_runtime.server.live_requests import LiveRequests
from sgl_runtime.server.pending_reply import PendingReply
from sgl_runtime.server.prompt_tokenizer import PromptTemplate, PromptTokenizer
from sgl_runtime.server.request_watch import RequestWatch
from sgl_runtime.server.scheduler_questions import SchedulerQuestions
from sgl_runtime.server.submission import Submission, Submitting
from sgl_runtime.server.text_encoder import DEFAULT_WORKERS, TextEncoder
from sgl_runtime.tokenizer.no_tokenizer import REASON

logger = logging.getLogger(__name__)

MAX_HEARTBEAT_AGE_S = 10.0
_LEAVE_WAIT_S = 0.5
_PROMPTS_A_TURN = 32


class TokenizerManager:
    """Holds one waiter for each live request.

    Args:
        tokenizer: Of the served model.
        model_info: Limits that requests are checked against.
        send: Queues messages for the scheduler.
        max_live_requests: Most requests at a time; past it a request is refused. None for no limit.
        features: Which options of requests are on.
        num_tokenizer_workers: Most threads that turn long texts into ids.
        watch: Told what becomes of requests.

    Attributes:
        texts: Turns texts into ids.
        questions: What is asked of the scheduler besides requests.
    """

    def __init__(
        self,
        *,
        tokenizer: PromptTokenizer,
        model_info: ModelInfo,
        send: Callable[[Sequence[SchedulerInput]], None],
        max_live_requests: int | None = None,
        features: FeatureConfig | None = None,
        watch: RequestWatch | None = None,
        num_tokenizer_workers: int = DEFAULT_WORKERS,
    ) -> None:
        self.tokenizer = tokenizer
        self.model_info = model_info
        self._send = send
        self._live = LiveRequests(limit=max_live_requests)
        self.texts = TextEncoder(tokenizer, num_workers=num_tokenizer_workers)
        features = features or FeatureConfig()
        self._generation_prompts = GenerationPrompts(
            self.texts,
            bos_id=tokenizer.bos_id,
            model_info=model_info,
            features=features,
        )
        self._encode_prompts = EncodePrompts(self.texts, model_info, cuts=features.allow_auto_truncate)
        self._watch = watch or RequestWatch()
        self.questions = SchedulerQuestions(send)
        self._failure: SglRuntimeError | None = None
        self._is_draining = False
        self._last_heartbeat = time.monotonic()

    @property
    def max_live(self) -> int | None:
        """Most requests at a time; None for no limit."""
        return self._live.limit

    @property
    def num_live(self) -> int:
        """Requests that someone waits for."""
        return len(self._live)

    def submit(self, requests: Sequence[GenerateRequest], *, stream: bool, is_probe: bool = False) -> Submitting:
        """Send requests to the scheduler on entering what this gives; on leaving, those that still run are aborted.

        Args:
            requests: The prompts of one call.
            stream: Whether the caller wants every update, or only the ends.
            is_probe: Whether the server itself asks, to see that it works.

        Raises:
            SglRuntimeError: on entering: a request is wrong; none was sent then.
        """
        vocabulary = self.tokenizer.vocabulary
        pendings = [PendingReply(request, vocabulary, index=index) for index, request in enumerate(requests)]
        for pending in pendings:
            pending.is_probe = is_probe
        return Submitting(Submission(pendings, stream=stream), begin=self._begin, end=self._give_up)

    async def _begin(self, submission: Submission) -> None:
        self._check_serving()
        self._live.add(submission)
        try:
            await self._send_call(submission.pendings)
        except BaseException:
            self._give_up(submission)
            raise

    async def _send_call(self, pendings: Sequence[PendingReply]) -> None:
        messages: list[TokenizedRequest] = []
        text_ids = await self._encode_batch(pendings) if len(pendings) > 1 else {}
        for pending in pendings:
            if pending.index % _PROMPTS_A_TURN == _PROMPTS_A_TURN - 1:
                # A call may have very many prompts: others get their turn between them.
                await asyncio.sleep(0)
            # Outputs of one prompt stand together and have the same ids.
            known = text_ids.get(pending.index)
            if pending.request.sample:
                known = pendings[pending.index - 1].text_ids
            wish = pending.request.pooling
            if wish is not None:
                messages.append(await self._encode_prompts.message(pending, wish))
            else:
                messages.append(await self._generation_prompts.message(pending, known))
        self._check_serving()
        self._send_all(pendings, messages)

    def deliver(self, messages: Sequence[DetokenizerOutput]) -> None:
        """Take messages from the detokenizer."""
        for message in messages:
            if isinstance(message, TextDelta):
                self._deliver_text(message)
            elif isinstance(message, Heartbeat):
                self._last_heartbeat = time.monotonic()
            else:
                self.questions.answer(message)

    def fail_all(self, error: SglRuntimeError) -> None:
        """End every wait, now and from now on, with an error."""
        self._failure = error
        for pending, submission in self._live:
            pending.fail(error)
            submission.notify(pending)
        self.questions.fail(error)

    async def drain(self, *, grace_s: float) -> None:
        """Refuse new requests; let those that run finish, and end what is left when the time is over."""
        stopping = OverloadedError("the server is shutting down")
        self._is_draining = True
        # What has failed before stays the cause.
        self._failure = self._failure or stopping
        try:
            await self._wait_idle(stopping, grace_s)
        finally:
            # Until then requests can still be aborted, and a pause be ended.
            self.questions.refuse(stopping)
            self.texts.close()

    async def _wait_idle(self, stopping: SglRuntimeError, grace_s: float) -> None:
        if not self._live:
            return
        try:
            await asyncio.wait_for(self._live.idle.wait(), grace_s)
        except TimeoutError:
            logger.info("requests ended by shutdown count=%d", len(self._live))
            self.fail_all(stopping)
            # Each of them leaves by itself now, unless its reader is stuck.
            await asyncio.wait((asyncio.ensure_future(self._live.idle.wait()),), timeout=_LEAVE_WAIT_S)

    def check_health(self) -> None:
        """Whether the scheduler's loop turns.

        Raises:
            SglRuntimeError: it gave no sign of life, or the runtime has failed.
        """
        if not self._is_draining:
            self._check_serving()
        age = time.monotonic() - self._last_heartbeat
        if age > MAX_HEARTBEAT_AGE_S:
            raise OverloadedError(
                f"no sign of life from the scheduler for {age:.0f} s; {MAX_HEARTBEAT_AGE_S:.0f} s are the limit"
            )

    def check_ready(self) -> None:
        """Whether a request would be taken.

        Raises:
            SglRuntimeError: none would.
        """
        self._check_serving()
        self.check_health()

    def chat_template(self) -> PromptTemplate:
        """The served model's template.

        Raises:
            InvalidRequestError: it has none.
        """
        if self.model_info.pooling is not None:
            raise InvalidRequestError(refusal_to_generate(self.model_info.pooling))
        template = self.tokenizer.chat_template
        if not self.model_info.has_tokenizer:
            raise InvalidRequestError(REASON)
        if template is None:
            raise InvalidRequestError("the served model has no chat template; start the server with --chat-template")
        return template

    async def flush_cache(self, *, timeout_s: float) -> FlushCacheReply:
        """Empty the prefix cache, if need be after waiting so long for the requests to end."""
        return await self.questions.flush_cache(until_idle=self._live.idle, timeout_s=timeout_s)

    async def abort(self, rid: str | None) -> list[str]:
        """End all outputs of one request, or with None every request; the clients' rids of those that were live."""
        chosen = self._live.of_client(rid)
        client_rids = {pending.request.rid: pending.request.client_rid for pending in chosen}
        unsent = [pending.request.rid for pending in chosen if not pending.is_sent]
        for own_rid in unsent:
            finish = FinishReason(type="abort", message="aborted before it began")
            self._deliver_text(TextDelta(rid=own_rid, text="", new_ids=[], finish=finish))
        own_rids = {rid or ""}
        if rid is not None:
            own_rids |= client_rids.keys() - set(unsent)
        replies = await asyncio.gather(*(self.questions.abort(own_rid, abort_all=rid is None) for own_rid in own_rids))
        aborted = [*unsent, *(own_rid for reply in replies for own_rid in reply)]
        return list(dict.fromkeys(client_rids.get(own_rid, own_rid) for own_rid in aborted))

    def _check_serving(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    async def _encode_batch(self, pendings: Sequence[PendingReply]) -> dict[int, list[int]]:
        """For calls with several prompts, ids of their texts by place in the call."""
        found: dict[int, list[int]] = {}
        for add_bos in (True, False):
            texts = {
                index: request.text
                for index, request in enumerate(pending.request for pending in pendings)
                if request.text is not None
                and not request.sample
                and request.pooling is None
                and (request.input_ids is None) is add_bos
            }
            if len(texts) > 1:
                found |= zip(texts, await self.texts.encode_all(list(texts.values()), add_bos=add_bos), strict=True)
        return found

    def _send_all(self, pendings: Sequence[PendingReply], messages: Sequence[TokenizedRequest]) -> None:
        # A request that was aborted while its text became ids has its answer already.
        waiting = [
            (pending, message) for pending, message in zip(pendings, messages, strict=True) if not pending.is_finished
        ]
        for pending, message in waiting:
            pending.is_sent = True
            if not pending.is_probe:
                self._watch.received(pending, message)
        if waiting:
            self._send([message for _, message in waiting])

    def _give_up(self, submission: Submission) -> None:
        left = self._live.leave(submission)
        for pending in submission.pendings:
            if pending.request.rid in left:
                self._watch.ended(pending.request.rid, reason="left" if pending.error is None else pending.error.code)
        if left and (self._failure is None or self._is_draining):
            self._send([AbortRequest(request_id="", rid=rid) for rid in left])

    def _deliver_text(self, delta: TextDelta) -> None:
        if delta.finish is not None:
            self._live.confirm_end(delta.rid)
        entry = self._live.get(delta.rid)
        if entry is None:
            logger.debug("text for a request that nobody waits for rid=%r", delta.rid)
            return
        pending, submission = entry
        pending.apply(delta)
        self._watch.progressed(delta)
        if delta.prompt_ids is not None:
            # What a session puts in front of the prompt is no news to whoever reads a stream.
            return
        submission.notify(pending)
        if delta.finish is None:
            return
        self._live.end(delta.rid)
        self._watch.ended(delta.rid, reason=delta.finish.code or delta.finish.type)
        if delta.finish.code == SglRuntimeError.code:
            # Whoever failed may not have been the scheduler: it must not go on with this request.
            self._send([AbortRequest(request_id="", rid=delta.rid)])
