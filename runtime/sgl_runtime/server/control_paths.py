"""Paths that act on what runs: aborts, pauses, sessions, the prefix cache."""

from collections.abc import Mapping
from typing import Any, get_args

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.ipc.messages import PauseMode
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.field_checks import (
    checked_boolean,
    checked_fields,
    checked_id,
    checked_integer,
    checked_name,
    checked_seconds,
)
from sgl_runtime.server.generate_request import new_rid
from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.tokenizer_manager import TokenizerManager

MAX_EVENTS = 1000
"""Events of the prefix cache in one reply of `/kv_events`."""

MAX_SESSION_ID = 256
MAX_WAIT_S = 1e6
"""Longest time that a request may name."""


class ControlPaths:
    """What is asked of the scheduler besides requests.

    Args:
        manager: Holds the requests that these act on.
    """

    def __init__(self, manager: TokenizerManager) -> None:
        self._manager = manager

    def paths(self) -> Mapping[str, NativePath]:
        """Each path, and how it is answered."""
        return {
            "/flush_cache": NativePath(answer=self._flush_cache, methods=("GET", "POST"), is_admin=True),
            "/kv_events": NativePath(answer=self._kv_events, is_admin=True),
            "/abort_request": NativePath(answer=self._abort_request),
            "/pause_generation": NativePath(answer=self._pause_generation, is_admin=True),
            "/continue_generation": NativePath(answer=self._continue_generation, is_admin=True),
            "/open_session": NativePath(answer=self._open_session),
            "/close_session": NativePath(answer=self._close_session),
        }

    async def _flush_cache(self, payload: Any) -> dict[str, Any]:
        """Empty the prefix cache."""
        fields = checked_fields({} if payload is None else payload, ("timeout",))
        timeout_s = checked_seconds("timeout", fields["timeout"], high=MAX_WAIT_S) if "timeout" in fields else 0.0
        reply = await self._manager.flush_cache(timeout_s=timeout_s)
        return {"success": reply.success, "message": reply.message}

    async def _kv_events(self, payload: Any) -> dict[str, Any]:
        """What happened in the prefix cache."""
        fields = checked_fields({} if payload is None else payload, ("since", "limit"))
        since = checked_integer("since", fields.get("since", 0), low=0)
        limit = checked_integer("limit", fields.get("limit", MAX_EVENTS), low=1, high=MAX_EVENTS)
        page = await self._manager.questions.cache_events(since, limit)
        if page is None:
            raise InvalidRequestError("no events are kept; start the server with --kv-events")
        return page

    async def _abort_request(self, payload: Any) -> dict[str, Any]:
        """End a request, or all."""
        fields = checked_fields(payload, ("rid", "abort_all"))
        abort_all = checked_boolean("abort_all", fields.get("abort_all", False))
        if abort_all == ("rid" in fields):
            raise InvalidRequestError("give either rid or abort_all: true", param="rid")
        rid = None if abort_all else checked_id("rid", fields["rid"])
        return {"aborted": await self._manager.abort(rid)}

    async def _pause_generation(self, payload: Any) -> dict[str, Any]:
        """Run no pass until it is continued."""
        fields = checked_fields({} if payload is None else payload, ("mode",))
        mode = fields.get("mode", "abort")
        if mode not in get_args(PauseMode):
            raise reject("mode", mode, f"one of {', '.join(get_args(PauseMode))}")
        return {"success": True, "message": await self._manager.questions.pause(mode)}

    async def _continue_generation(self, payload: Any) -> dict[str, Any]:
        """Run passes again."""
        checked_fields({} if payload is None else payload, ())
        return {"success": True, "message": await self._manager.questions.resume()}

    async def _open_session(self, payload: Any) -> str:
        """Begin a session."""
        fields = checked_fields(payload, ("capacity_of_str_len", "session_id", "timeout"))
        session_id = checked_name("session_id", fields["session_id"]) if "session_id" in fields else new_rid()
        if len(session_id) > MAX_SESSION_ID:
            raise reject("session_id", session_id, f"a string of at most {MAX_SESSION_ID} characters")
        capacity = checked_integer("capacity_of_str_len", fields.get("capacity_of_str_len"), low=1)
        timeout_s = checked_seconds("timeout", fields["timeout"], high=MAX_WAIT_S) if "timeout" in fields else None
        await self._manager.questions.open_session(session_id, capacity_bytes=capacity, timeout_s=timeout_s)
        return session_id

    async def _close_session(self, payload: Any) -> dict[str, Any]:
        """Forget a session."""
        fields = checked_fields(payload, ("session_id",))
        session_id = checked_id("session_id", fields.get("session_id"))
        return {"success": True, "message": await self._manager.questions.close_session(session_id)}
