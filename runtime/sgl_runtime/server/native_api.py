"""NativeApi: every path of docs/protocol.md, for the HTTP routes and for `Engine` alike."""

import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import asdict
from typing import Any, get_args

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.ipc.messages import PauseMode
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.field_checks import (
    checked_boolean,
    checked_fields,
    checked_integer,
    checked_name,
    checked_seconds,
    checked_text,
)
from sgl_runtime.server.generate_request import new_rid, parse_generate
from sgl_runtime.server.prompt_tokenizer import PromptTemplate
from sgl_runtime.server.tokenizer_manager import TokenizerManager
from sgl_runtime.version import distribution_version

MAX_SESSION_ID = 256
MAX_WAIT_S = 1e6
"""Longest time that a request may name."""

Handler = Callable[[Any], Coroutine[Any, Any, Any]]


MAX_EVENTS = 1000
"""Events of the prefix cache in one reply of `/kv_events`."""


class NativeApi:
    """Answers payloads with JSON-shaped replies; what is wrong raises an `SglRuntimeError`.

    Args:
        manager: Runs the requests.
        settings: The effective configuration, for `/get_server_info`.
    """

    def __init__(self, manager: TokenizerManager, settings: dict[str, Any]) -> None:
        self.manager = manager
        self._settings = settings
        self._started = time.monotonic()
        self._handlers: dict[str, Handler] = {
            "/generate": self._generate,
            "/tokenize": self._tokenize,
            "/role_affixes": self._role_affixes,
            "/flush_cache": self._flush_cache,
            "/kv_events": self._kv_events,
            "/abort_request": self._abort_request,
            "/pause_generation": self._pause_generation,
            "/continue_generation": self._continue_generation,
            "/open_session": self._open_session,
            "/close_session": self._close_session,
            "/health": self._health,
            "/get_model_info": self._get_model_info,
            "/get_server_info": self._get_server_info,
        }

    async def call(self, path: str, payload: Any = None) -> Any:
        """The reply of a path.

        Args:
            path: As in docs/protocol.md.
            payload: The JSON body as Python objects; None where the path takes none.

        Raises:
            SglRuntimeError: the payload is wrong, or the request failed.
        """
        handler = self._handlers.get(path)
        if handler is None:
            raise InvalidRequestError(f"{path!r} is no path; known: {', '.join(self._handlers)}")
        return await handler(payload)

    async def stream(self, path: str, payload: Any) -> AsyncGenerator[dict[str, Any], None]:
        """The replies of `/generate` as they grow; the last of each prompt has a finish reason.

        Raises:
            SglRuntimeError: the payload is wrong, or a request failed.
        """
        if path != "/generate":
            raise InvalidRequestError(f"{path!r} does not stream; only '/generate' does")
        body = parse_generate(payload)
        async with (
            self.manager.submit(body.requests, stream=True) as submission,
            aclosing(submission.updates()) as updates,
        ):
            async for pending in updates:
                yield pending.reply()

    async def _generate(self, payload: Any) -> Any:
        body = parse_generate(payload)
        if body.stream:
            raise InvalidRequestError("stream is true; a call answers once, ask for the stream instead", param="stream")
        async with self.manager.submit(body.requests, stream=False) as submission:
            await submission.finish()
        replies = [pending.reply() for pending in submission.pendings]
        return replies if body.is_batch else replies[0]

    async def _tokenize(self, payload: Any) -> dict[str, Any]:
        fields = checked_fields(payload, ("text", "add_special_tokens"))
        text = fields.get("text")
        texts = [checked_text(f"text[{i}]", item) for i, item in enumerate(text)] if isinstance(text, list) else None
        add_special_tokens = checked_boolean("add_special_tokens", fields.get("add_special_tokens", False))
        if texts is None:
            tokens = await self.manager.encode(checked_text("text", text), add_bos=add_special_tokens)
            return {"tokens": tokens, "count": len(tokens)}
        lists = [await self.manager.encode(item, add_bos=add_special_tokens) for item in texts]
        return {"tokens": lists, "count": [len(tokens) for tokens in lists]}

    async def _role_affixes(self, payload: Any) -> dict[str, Any]:
        fields = checked_fields(payload, ("messages", "role"))
        messages = checked_messages(fields.get("messages", []), allow_empty=True)
        role = checked_text("role", fields.get("role"))
        prefix, suffix = self.chat_template().role_affixes(messages, role)
        return {"prefix": prefix, "suffix": suffix}

    async def _flush_cache(self, payload: Any) -> dict[str, Any]:
        fields = checked_fields({} if payload is None else payload, ("timeout",))
        timeout_s = checked_seconds("timeout", fields["timeout"], high=MAX_WAIT_S) if "timeout" in fields else 0.0
        reply = await self.manager.flush_cache(timeout_s=timeout_s)
        return {"success": reply.success, "message": reply.message}

    async def _kv_events(self, payload: Any) -> dict[str, Any]:
        fields = checked_fields({} if payload is None else payload, ("since", "limit"))
        since = checked_integer("since", fields.get("since", 0), low=0)
        limit = checked_integer("limit", fields.get("limit", MAX_EVENTS), low=1, high=MAX_EVENTS)
        page = await self.manager.questions.cache_events(since, limit)
        if page is None:
            raise InvalidRequestError("no events are kept; start the server with --kv-events")
        return page

    async def _abort_request(self, payload: Any) -> dict[str, Any]:
        fields = checked_fields(payload, ("rid", "abort_all"))
        abort_all = checked_boolean("abort_all", fields.get("abort_all", False))
        if abort_all == ("rid" in fields):
            raise InvalidRequestError("give either rid or abort_all: true", param="rid")
        rid = None if abort_all else checked_text("rid", fields["rid"])
        return {"aborted": await self.manager.abort(rid)}

    async def _pause_generation(self, payload: Any) -> dict[str, Any]:
        fields = checked_fields({} if payload is None else payload, ("mode",))
        mode = fields.get("mode", "abort")
        if mode not in get_args(PauseMode):
            raise reject("mode", mode, f"one of {', '.join(get_args(PauseMode))}")
        return {"success": True, "message": await self.manager.questions.pause(mode)}

    async def _continue_generation(self, payload: Any) -> dict[str, Any]:
        checked_fields({} if payload is None else payload, ())
        return {"success": True, "message": await self.manager.questions.resume()}

    async def _open_session(self, payload: Any) -> str:
        fields = checked_fields(payload, ("capacity_of_str_len", "session_id", "timeout"))
        session_id = checked_name("session_id", fields["session_id"]) if "session_id" in fields else new_rid()
        if len(session_id) > MAX_SESSION_ID:
            raise reject("session_id", session_id, f"a string of at most {MAX_SESSION_ID} characters")
        capacity = checked_integer("capacity_of_str_len", fields.get("capacity_of_str_len"), low=1)
        timeout_s = checked_seconds("timeout", fields["timeout"], high=MAX_WAIT_S) if "timeout" in fields else None
        await self.manager.questions.open_session(session_id, capacity_bytes=capacity, timeout_s=timeout_s)
        return session_id

    async def _close_session(self, payload: Any) -> dict[str, Any]:
        fields = checked_fields(payload, ("session_id",))
        session_id = checked_name("session_id", fields.get("session_id"))
        return {"success": True, "message": await self.manager.questions.close_session(session_id)}

    async def _health(self, payload: Any) -> dict[str, Any]:
        self.manager.check_health()
        return {"status": "ok"}

    async def _get_model_info(self, payload: Any) -> dict[str, Any]:
        return asdict(self.manager.model_info)

    async def _get_server_info(self, payload: Any) -> dict[str, Any]:
        state = {"uptime_seconds": time.monotonic() - self._started, **await self.manager.questions.stats()}
        return {**self._settings, "version": distribution_version(), "internal_states": [state]}

    def chat_template(self) -> PromptTemplate:
        """The served model's template.

        Raises:
            InvalidRequestError: it has none.
        """
        template = self.manager.tokenizer.chat_template
        if template is None:
            raise InvalidRequestError("the served model has no chat template; start the server with --chat-template")
        return template


def checked_messages(messages: Any, *, allow_empty: bool = False) -> list[dict[str, Any]]:
    """Chat messages whose content is plain text.

    Returns:
        The messages with text parts joined; every other field is kept for the template.

    Raises:
        InvalidRequestError: something in them is wrong, with its path.
    """
    if not isinstance(messages, list) or not (messages or allow_empty):
        raise reject("messages", messages, "a list of messages" if allow_empty else "a non-empty list of messages")
    return [_checked_message(f"messages[{index}]", message) for index, message in enumerate(messages)]


def _checked_message(path: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise reject(path, message, "an object with role and content")
    checked_text(f"{path}.role", message.get("role"))
    content = message.get("content")
    if isinstance(content, list):
        parts = [_text_part(f"{path}.content[{index}]", part) for index, part in enumerate(content)]
        return {**message, "content": "".join(parts)}
    return {**message, "content": checked_text(f"{path}.content", content)}


def _text_part(path: str, part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        raise reject(path, part, 'an object {"type": "text", "text": "..."}')
    return checked_text(f"{path}.text", part.get("text"))
