"""TokenizerManager: requests to ids and on to the scheduler; deltas back to whoever waits for them.

One for each API process.  Everything runs on one event loop; `send` must return at once.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from msgspec import structs

from sgl_runtime.config import FeatureConfig, logit_processor_paths
from sgl_runtime.errors import ContextLengthError, InvalidRequestError, OverloadedError, SglRuntimeError
from sgl_runtime.ipc.messages import (
    AbortRequest,
    DetokenizerOutput,
    FinishReason,
    FlushCacheReply,
    Heartbeat,
    LogitProcessorCall,
    SchedulerInput,
    TextDelta,
    TokenizedRequest,
)
from sgl_runtime.model_info import ModelInfo
from sgl_runtime.server.generate_request import GenerateRequest
from sgl_runtime.server.live_requests import LiveRequests
from sgl_runtime.server.pending_reply import PendingReply
from sgl_runtime.server.prompt_tokenizer import PromptTemplate, PromptTokenizer
from sgl_runtime.server.request_log import RequestLog
from sgl_runtime.server.scheduler_questions import SchedulerQuestions
from sgl_runtime.server.stop_regex_compiler import StopRegexCompiler
from sgl_runtime.server.submission import Submission

logger = logging.getLogger(__name__)

MAX_HEARTBEAT_AGE_S = 10.0
_LONG_TEXT = 16_384
_LEAVE_WAIT_S = 0.5


class TokenizerManager:
    """Holds one waiter for each live request.

    Args:
        tokenizer: Of the served model.
        model_info: Limits that requests are checked against.
        send: Queues messages for the scheduler.
        max_live_requests: Most requests at a time; past it a request is refused. None for no limit.
        features: Which options of requests are on.

    Attributes:
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
    ) -> None:
        self.tokenizer = tokenizer
        self.model_info = model_info
        self._send = send
        self._live = LiveRequests(limit=max_live_requests)
        self._features = features or FeatureConfig()
        self._log = RequestLog(is_on=self._features.log_requests)
        self._stop_regexes = StopRegexCompiler()
        self.questions = SchedulerQuestions(send)
        self._failure: SglRuntimeError | None = None
        self._last_heartbeat = time.monotonic()

    @property
    def num_live(self) -> int:
        """Requests that someone waits for."""
        return len(self._live)

    @asynccontextmanager
    async def submit(self, requests: Sequence[GenerateRequest], *, stream: bool) -> AsyncIterator[Submission]:
        """Send requests to the scheduler; on leaving, those that have not finished are aborted.

        Args:
            requests: The prompts of one call.
            stream: Whether the caller wants every update, or only the ends.

        Raises:
            SglRuntimeError: a request is wrong; none was sent then.
        """
        self._check_serving()
        vocabulary = self.tokenizer.vocabulary
        pendings = [PendingReply(request, vocabulary, index=index) for index, request in enumerate(requests)]
        submission = Submission(pendings, stream=stream)
        self._live.add(submission)
        try:
            messages: list[TokenizedRequest] = []
            for pending in pendings:
                # Outputs of one prompt stand together and have the same ids.
                known = pendings[pending.index - 1].text_ids if pending.request.sample else None
                messages.append(await self._tokenize(pending, known))
            self._check_serving()
            self._send_all(pendings, messages)
            yield submission
        finally:
            self._give_up(submission)

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
        self._failure = stopping
        self.questions.refuse(stopping)
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
        self._check_serving()
        age = time.monotonic() - self._last_heartbeat
        if age > MAX_HEARTBEAT_AGE_S:
            raise OverloadedError(
                f"no sign of life from the scheduler for {age:.0f} s; {MAX_HEARTBEAT_AGE_S:.0f} s are the limit"
            )

    async def encode(self, text: str, *, add_bos: bool) -> list[int]:
        """Ids of a text; a long one does not stop the event loop."""
        if len(text) < _LONG_TEXT:
            return self.tokenizer.encode(text, add_bos=add_bos)
        return await asyncio.to_thread(self.tokenizer.encode, text, add_bos=add_bos)

    def chat_template(self) -> PromptTemplate:
        """The served model's template.

        Raises:
            InvalidRequestError: it has none.
        """
        template = self.tokenizer.chat_template
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

    async def _tokenize(self, pending: PendingReply, text_ids: list[int] | None) -> TokenizedRequest:
        request, session = pending.request, pending.request.session_params
        self._check_ids(request)
        check_features(request, self._features)
        prefix = request.input_ids or []
        if text_ids is None:
            text = request.text
            text_ids = [] if text is None else await self.encode(text, add_bos=request.input_ids is None)
        input_ids = [*prefix, *text_ids]
        sampling = replace(
            request.sampling,
            max_new_tokens=resolve_max_new_tokens(
                request.sampling.max_new_tokens,
                num_prompt_ids=len(input_ids),
                context_length=self.model_info.context_length,
                path=request.path,
                may_be_empty=session is not None,
            ),
        )
        if session is not None:
            num_bos = int(bool(input_ids) and input_ids[0] == self.tokenizer.bos_id)
            session = structs.replace(session, num_bos=num_bos)
        start = request.logprob_start_len if request.return_logprob else -1
        # What a session puts in front of the prompt, and so how long it is, the scheduler knows.
        if session is None and start > len(input_ids):
            raise InvalidRequestError(
                f"{request.path}logprob_start_len is {start}; the prompt has {len(input_ids)} tokens",
                param=f"{request.path}logprob_start_len",
            )
        stop_automata = await self._stop_regexes.compile(
            sampling.stop_regex, path=f"{request.path}sampling_params.stop_regex"
        )
        pending.set_prompt(input_ids, text_ids)
        return TokenizedRequest(
            rid=request.rid,
            input_ids=input_ids,
            sampling=sampling,
            priority=request.priority,
            stop_automata=stop_automata,
            return_logprob=request.return_logprob,
            # A start at the very end asks for no position at all.
            logprob_start_len=-1 if session is None and start == len(input_ids) else start,
            top_logprobs_num=request.top_logprobs_num,
            token_ids_logprob=request.token_ids_logprob,
            extra_key=request.extra_key,
            return_hidden_states=request.return_hidden_states,
            session=session,
            logit_processor=request.custom_logit_processor,
            arrival_time=time.monotonic(),
        )

    def _send_all(self, pendings: Sequence[PendingReply], messages: Sequence[TokenizedRequest]) -> None:
        # A request that was aborted while its text became ids has its answer already.
        waiting = [
            (pending, message) for pending, message in zip(pendings, messages, strict=True) if not pending.is_finished
        ]
        for pending, message in waiting:
            pending.is_sent = True
            self._log.received(message)
        if waiting:
            self._send([message for _, message in waiting])

    def _check_ids(self, request: GenerateRequest) -> None:
        size = self.model_info.vocab_size
        for position, token_id in enumerate(request.input_ids or ()):
            if not 0 <= token_id < size:
                path = f"{request.path}input_ids[{position}]"
                raise InvalidRequestError(f"{path} is {token_id}; it must be from 0 to {size - 1}", param=path)
        for name, ids in (
            ("sampling_params.stop_token_ids", request.sampling.stop_token_ids),
            ("sampling_params.logit_bias", [token_id for token_id, _ in request.sampling.logit_bias]),
            ("token_ids_logprob", request.token_ids_logprob),
        ):
            for token_id in ids:
                if not 0 <= token_id < size:
                    path = f"{request.path}{name}"
                    raise InvalidRequestError(f"{path} holds {token_id}; ids go from 0 to {size - 1}", param=path)

    def _give_up(self, submission: Submission) -> None:
        left = self._live.leave(submission)
        for pending in submission.pendings:
            if pending.request.rid in left:
                self._log.ended(pending, reason="left")
        if left and self._failure is None:
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
        if delta.prompt_ids is not None:
            # What a session puts in front of the prompt is no news to whoever reads a stream.
            return
        submission.notify(pending)
        if delta.finish is None:
            return
        self._live.end(delta.rid)
        self._log.ended(pending, reason=delta.finish.code or delta.finish.type)
        if delta.finish.code == SglRuntimeError.code:
            # Whoever failed may not have been the scheduler: it must not go on with this request.
            self._send([AbortRequest(request_id="", rid=delta.rid)])


def check_features(request: GenerateRequest, features: FeatureConfig) -> None:
    """Refuse options that the server was not started with.

    Raises:
        InvalidRequestError: the request has one; the message names what turns it on.
    """
    if request.return_hidden_states and not features.enable_return_hidden_states:
        path = f"{request.path}return_hidden_states"
        raise InvalidRequestError(
            f"{path} is true; start the server with --enable-return-hidden-states to allow it", param=path
        )
    path = f"{request.path}custom_logit_processor"
    match request.custom_logit_processor:
        case LogitProcessorCall(is_pickled=True) if not features.enable_custom_logit_processor:
            raise InvalidRequestError(
                f"{path} is a pickled callable; start the server with --enable-custom-logit-processor to allow it",
                param=path,
            )
        case LogitProcessorCall(is_pickled=False, name=name):
            known = sorted(logit_processor_paths(features.custom_logit_processor))
            if name not in known:
                raise InvalidRequestError(
                    f"{path} is {name!r}; the server was started with {', '.join(known) or 'none'}", param=path
                )
        case None if request.sampling.custom_params is not None:
            path = f"{request.path}sampling_params.custom_params"
            raise InvalidRequestError(f"{path} is given without custom_logit_processor", param=path)


def resolve_max_new_tokens(
    asked: int | None, *, num_prompt_ids: int, context_length: int, path: str = "", may_be_empty: bool = False
) -> int:
    """How many tokens a request may generate.

    Args:
        asked: The request's limit; None for none.
        num_prompt_ids: Tokens of the prompt.
        context_length: Tokens of prompt and output together.
        path: Prefix of field names in errors.
        may_be_empty: Whether the prompt may hold no token.

    Raises:
        InvalidRequestError: the prompt is empty.
        ContextLengthError: the prompt leaves no room for what is asked.
    """
    if num_prompt_ids == 0 and not may_be_empty:
        raise InvalidRequestError(f"{path}the prompt is empty; it must hold at least one token", param=f"{path}text")
    room = context_length - num_prompt_ids
    if room < (0 if asked == 0 else 1):
        raise ContextLengthError(
            f"{path}the prompt has {num_prompt_ids} tokens; the context holds {context_length}"
            + ("" if asked == 0 else ", at least one of them for the output"),
            param=f"{path}text",
        )
    return room if asked is None else min(asked, room)
