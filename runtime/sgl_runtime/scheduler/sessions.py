"""Sessions: conversations whose turns go on from the tokens of earlier ones.

A turn keeps only what it adds: its own prompt ids and its output.  Keys and values are held by nothing here: the prefix
cache has them as it has those of every request that ended, and gives them up when slots run short.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from msgspec import structs

from sgl_runtime.cache.prefix_cache import TokenArray
from sgl_runtime.errors import ContextLengthError, InvalidRequestError, OverloadedError, SglRuntimeError
from sgl_runtime.ipc.messages import CloseSessionRequest, ControlReply, OpenSessionRequest, TokenizedRequest
from sgl_runtime.ipc.request_parts import SessionTurn
from sgl_runtime.scheduler.req import Req

MAX_TURNS = 1024
"""Turns that one session holds."""


@dataclass(eq=False)
class _Turn:
    """One request of a session.

    Attributes:
        rid: Its id.
        parent: The turn that it follows.
        kept: How many of that turn's tokens stand in front of its own.
        own: Its own prompt ids.
        req: The request while it lives.
        output: What it generated, once it has ended.
    """

    rid: str
    parent: "_Turn | None"
    kept: int
    own: TokenArray
    req: Req | None = None
    output: TokenArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def prompt_len(self) -> int:
        return self.kept + len(self.own)

    def generated(self) -> TokenArray:
        """The output so far."""
        return self.output if self.req is None else self.req.tokens.view(self.req.prompt_len, len(self.req.tokens))

    def tokens(self, count: int) -> TokenArray:
        """The first tokens of prompt and output."""
        pieces: list[TokenArray] = []
        turn: _Turn | None = self
        while turn is not None and count > 0:
            pieces.append(np.concatenate([turn.own, turn.generated()])[: max(count - turn.kept, 0)])
            count, turn = min(count, turn.kept), turn.parent
        return np.concatenate(pieces[::-1]) if pieces else np.empty(0, dtype=np.int64)


@dataclass(eq=False)
class _Session:
    """An open session; its turns by rid, the latest last, and those whose request lives."""

    capacity_bytes: int
    timeout_s: float | None
    last_used: float
    turns: dict[str, _Turn] = field(default_factory=dict)
    live: list[_Turn] = field(default_factory=list)

    def settle(self) -> None:
        """Keep what ended turns generated, and forget those that failed."""
        for turn in self.live:
            if turn.req is None or not turn.req.is_done:
                continue
            reason = turn.req.finish_reason
            turn.output, turn.req = turn.generated().copy(), None
            if reason is not None and reason.code is not None:
                self.turns.pop(turn.rid, None)
        self.live = [turn for turn in self.live if turn.req is not None]


@dataclass(frozen=True)
class JoinedTurn:
    """A turn with its whole prompt.

    Attributes:
        message: The request with all its ids.
        superseded: Live requests whose turns are forgotten for it.
    """

    message: TokenizedRequest
    superseded: list[Req]


class Sessions:
    """Every open session.

    Args:
        max_sessions: Most that are open at a time.
        context_length: Tokens of prompt and output together.
        token_lens: (V,) bytes of each token.
        max_turns: Turns that one session holds.
        clock: Gives seconds.
    """

    def __init__(
        self,
        *,
        max_sessions: int,
        context_length: int,
        token_lens: TokenArray,
        max_turns: int = MAX_TURNS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_sessions = max_sessions
        self._context_length = context_length
        self._token_lens = token_lens
        self._max_turns = max_turns
        self._clock = clock
        self._sessions: dict[str, _Session] = {}

    @property
    def num_open(self) -> int:
        """Sessions that are open."""
        self._close_idle()
        return len(self._sessions)

    def open(self, message: OpenSessionRequest) -> ControlReply:
        """Begin a session."""
        self._close_idle()
        session_id = message.session_id
        if session_id in self._sessions:
            error: SglRuntimeError = InvalidRequestError(
                f"session_id {session_id!r} belongs to an open session; give another", param="session_id"
            )
            return _refused(message.request_id, error)
        if len(self._sessions) >= self._max_sessions:
            error = OverloadedError(f"{len(self._sessions)} sessions are open; the server takes {self._max_sessions}")
            return _refused(message.request_id, error)
        self._sessions[session_id] = _Session(message.capacity_bytes, message.timeout_s, self._clock())
        return ControlReply(request_id=message.request_id, message="open")

    def close(self, message: CloseSessionRequest) -> ControlReply:
        """Forget a session; turns that run go on to their end, as requests of no session."""
        self._close_idle()
        session = self._sessions.pop(message.session_id, None)
        if session is None:
            return _refused(message.request_id, _unknown_session(message.session_id, "session_id"))
        session.settle()
        text = f"{len(session.turns)} turns forgotten, {len(session.live)} of them still run"
        return ControlReply(request_id=message.request_id, message=text)

    def join(self, message: TokenizedRequest) -> JoinedTurn:
        """Put the tokens of an earlier turn in front of a request; `attach` makes a turn of it.

        Raises:
            InvalidRequestError: session or turn are unknown, the turn has not ended, or the whole is too long; nothing
                is changed then.
        """
        assert message.session is not None, "a request of a session"
        self._close_idle()
        params = message.session
        session = self._sessions.get(params.id)
        if session is None:
            raise _unknown_session(params.id, "session_params.id")
        session.settle()
        if message.rid in session.turns:
            raise InvalidRequestError(f"rid {message.rid!r} is a turn of this session already", param="rid")
        parent = _parent(session, params)
        forgotten = _followers(session, parent) if params.replace else []
        num_left = len(session.turns) - len(forgotten)
        if num_left >= self._max_turns:
            raise InvalidRequestError(
                f"session_params: the session has {num_left} turns and takes no more; replace an earlier one, or close",
                param="session_params",
            )
        kept = 0 if parent is None else _num_kept(parent, params)
        own = np.array(message.input_ids[params.num_bos if kept else 0 :], dtype=np.int64)
        front = np.empty(0, dtype=np.int64) if parent is None else parent.tokens(kept)
        ids = np.concatenate([front, own])
        self._check_length(session, ids, max_new_tokens=message.sampling.max_new_tokens)
        joined = _with_prompt(message, ids.tolist(), context_length=self._context_length)
        for turn in forgotten:
            del session.turns[turn.rid]
        ended = [*forgotten, parent] if params.replace and parent is not None else forgotten
        superseded = [turn.req for turn in ended if turn.req is not None]
        session.turns[message.rid] = _Turn(message.rid, parent, kept, own)
        session.last_used = self._clock()
        return JoinedTurn(joined, superseded)

    def attach(self, req: Req) -> None:
        """The request of a turn that was joined."""
        assert req.message.session is not None, "a request of a session"
        session = self._sessions[req.message.session.id]
        turn = session.turns[req.rid]
        turn.req = req
        session.live.append(turn)

    def _check_length(self, session: _Session, ids: TokenArray, *, max_new_tokens: int | None) -> None:
        if len(ids) == 0:
            raise InvalidRequestError("the prompt is empty; it must hold at least one token", param="text")
        if self._context_length - len(ids) < (0 if max_new_tokens == 0 else 1):
            raise ContextLengthError(
                f"the prompt has {len(ids)} tokens, with those of the session; the context holds"
                f" {self._context_length}" + ("" if max_new_tokens == 0 else ", at least one of them for the output"),
                param="text",
            )
        num_bytes = int(self._token_lens[ids[ids < len(self._token_lens)]].sum())
        if num_bytes > session.capacity_bytes:
            raise ContextLengthError(
                f"the prompt has {num_bytes} bytes of text, with those of the session; its capacity_of_str_len is"
                f" {session.capacity_bytes}",
                param="text",
            )

    def _close_idle(self) -> None:
        now = self._clock()
        for session_id, session in list(self._sessions.items()):
            if session.timeout_s is None:
                continue
            if session.live:
                session.settle()
                session.last_used = now
            elif now - session.last_used > session.timeout_s:
                del self._sessions[session_id]


def _parent(session: _Session, params: SessionTurn) -> _Turn | None:
    """The turn that a request follows; None for the first, and where it replaces all."""
    if params.rid is None:
        if params.replace or not session.turns:
            return None
        parent = next(reversed(session.turns.values()))
    elif params.rid in session.turns:
        parent = session.turns[params.rid]
    else:
        raise InvalidRequestError(
            f"session_params.rid is {params.rid!r}; the session has no such turn", param="session_params.rid"
        )
    if parent.req is not None and not params.replace:
        raise InvalidRequestError(
            f"session_params: turn {parent.rid!r} has not ended; wait for it, or replace it", param="session_params"
        )
    return parent


def _num_kept(parent: _Turn, params: SessionTurn) -> int:
    count = parent.prompt_len + (0 if params.drop_previous_output else len(parent.generated()))
    if params.offset is None:
        return count
    return max(count + params.offset, 0) if params.offset < 0 else min(params.offset, count)


def _followers(session: _Session, parent: _Turn | None) -> list[_Turn]:
    """The turns that follow a turn, over any number of turns; all, if it is None."""
    found: dict[_Turn, None] = {}
    # A turn stands behind the one that it was made of.
    for turn in session.turns.values():
        if parent is None or turn.parent is parent or turn.parent in found:
            found[turn] = None
    return list(found)


def _with_prompt(message: TokenizedRequest, ids: list[int], *, context_length: int) -> TokenizedRequest:
    asked = message.sampling.max_new_tokens
    assert asked is not None, "max_new_tokens is resolved before a request is sent"
    start = message.logprob_start_len
    if start > len(ids):
        raise InvalidRequestError(
            f"logprob_start_len is {start}; the prompt has {len(ids)} tokens, with those of the session",
            param="logprob_start_len",
        )
    return structs.replace(
        message,
        input_ids=ids,
        sampling=structs.replace(message.sampling, max_new_tokens=min(asked, context_length - len(ids))),
        logprob_start_len=-1 if start == len(ids) else start,
    )


def _unknown_session(session_id: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param} is {session_id!r}; there is no open session of this id", param=param)


def _refused(request_id: str, error: SglRuntimeError) -> ControlReply:
    return ControlReply(request_id=request_id, message=error.message, code=error.code, param=error.param)
