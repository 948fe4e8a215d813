"""ResponsesApi: /v1/responses, a translation to the chat core and back that keeps what it answered."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sgl_runtime.errors import InvalidRequestError, NotFoundError, OverloadedError, SglRuntimeError
from sgl_runtime.server.background_run import BackgroundRun
from sgl_runtime.server.chat.chat_service import ChatService, PreparedChat
from sgl_runtime.server.error_reply import internal_error
from sgl_runtime.server.generate_request import new_rid
from sgl_runtime.server.openai_names import openai_names
from sgl_runtime.server.openai_reply import ChatShape
from sgl_runtime.server.response_store import ResponseStore, StoredResponse
from sgl_runtime.server.responses_body import ResponsesBody, parse_responses
from sgl_runtime.server.responses_items import Item, chat_messages
from sgl_runtime.server.responses_truncation import prepare_fitting
from sgl_runtime.server.responses_writer import ResponseWriter
from sgl_runtime.server.sse import named_event
from sgl_runtime.server.tokenizer_manager import TokenizerManager

MAX_BACKGROUND = 256
MAX_STREAM_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class PreparedResponse:
    """A checked request.

    Attributes:
        body: Its body.
        chat: What the core runs.
        items: All that it answers: the conversation before, then the body's own input.
        writer: Writes the response.
    """

    body: ResponsesBody
    chat: PreparedChat
    items: list[Item]
    writer: ResponseWriter

    @property
    def stream(self) -> bool:
        """Whether the reply is a stream."""
        return self.body.call.stream


class ResponsesApi:
    """Makes responses, and keeps them.

    Args:
        manager: Knows the served model.
        service: Runs chats.
        max_background: Most responses that are made in the background at a time.
        max_stream_bytes: Most bytes that their streams may take together; the one that takes more is ended.
    """

    def __init__(
        self,
        manager: TokenizerManager,
        service: ChatService,
        *,
        max_background: int = MAX_BACKGROUND,
        max_stream_bytes: int = MAX_STREAM_BYTES,
    ) -> None:
        self._manager = manager
        self._service = service
        self._max_background = max_background
        self._max_stream_bytes = max_stream_bytes
        self._store = ResponseStore()
        self._runs: dict[str, BackgroundRun] = {}

    async def prepare(self, payload: Any) -> PreparedResponse:
        """Check a body and render its conversation.

        Raises:
            InvalidRequestError: the body is wrong, or the model has no chat template or refuses the messages.
            OverloadedError: too many responses are made in the background.
        """
        body = parse_responses(payload)
        if body.background and len(self._runs) >= self._max_background:
            raise OverloadedError(f"{len(self._runs)} responses are made in the background, the limit of this server")
        items = [*self._history(body.previous_id), *body.items]
        messages = chat_messages(items)
        if body.instructions is not None:
            messages = [{"role": "system", "content": body.instructions}, *messages]
        rid = new_rid()
        call = replace(body.call, messages=messages, options={"rid": rid, **body.call.options})
        with _names(body):
            if body.truncates:
                length = self._manager.model_info.context_length
                chat = await prepare_fitting(self._service, call, context_length=length)
            else:
                chat = await self._service.prepare(call)
        return PreparedResponse(body, chat, items, self._writer(body, f"resp_{rid}"))

    async def count_tokens(self, payload: Any) -> dict[str, Any]:
        """The reply of /v1/responses/input_tokens: how long the prompt of a body is."""
        prepared = await self.prepare(payload)
        return {"object": "response.input_tokens", "input_tokens": prepared.chat.num_prompt_tokens}

    async def reply(self, prepared: PreparedResponse) -> dict[str, Any]:
        """The whole response, or for one in the background what there is of it.

        Raises:
            SglRuntimeError: the request is wrong or failed.
        """
        if prepared.body.background:
            self._start(prepared)
            return prepared.writer.response()
        with _names(prepared.body):
            async with aclosing(self._service.stream(prepared.chat, piecewise=False)) as steps:
                async for step in steps:
                    prepared.writer.take(step)
        self._keep(prepared)
        return prepared.writer.response()

    async def stream(self, prepared: PreparedResponse) -> AsyncGenerator[bytes, None]:
        """The events of a response.

        Raises:
            SglRuntimeError: the request is wrong, or failed before there was any event.
        """
        if prepared.body.background:
            async with aclosing(self._start(prepared).follow(0)) as followed:
                async for data in followed:
                    yield data
            return
        writer, has_begun = prepared.writer, False
        try:
            with _names(prepared.body):
                async with aclosing(self._service.stream(prepared.chat)) as steps:
                    async for step in steps:
                        # Not before: until the first step the request may be refused, with a status.
                        events = [] if has_begun else writer.begin()
                        has_begun = True
                        events += writer.take(step)
                        if step.finish is not None:
                            self._keep(prepared)
                        for event in events:
                            yield named_event(event)
        except Exception as error:
            if not has_begun:
                raise
            events = writer.fail(_told(error))
            self._keep(prepared)
            for event in events:
                yield named_event(event)

    def retrieve(self, response_id: str) -> dict[str, Any]:
        """A response that is kept or under way.

        Raises:
            NotFoundError: there is none.
        """
        run = self._runs.get(response_id)
        return self._stored(response_id).response if run is None else run.writer.response()

    async def follow(self, response_id: str, *, after: int) -> AsyncGenerator[bytes, None]:
        """The events of a response in the background behind the one with this number.

        Raises:
            NotFoundError: there is no such response.
            InvalidRequestError: its events are not kept.
        """
        run = self._runs.get(response_id)
        stored = self._stored(response_id) if run is None else None
        if not (run.is_stream if run is not None else stored is not None and stored.events):
            raise InvalidRequestError(
                "stream is true; only responses that were created with stream and background can be followed",
                param="stream",
            )
        if stored is not None:
            for data in stored.events[after + 1 :]:
                yield data
            return
        assert run is not None
        async with aclosing(run.follow(after + 1)) as followed:
            async for data in followed:
                yield data

    async def delete(self, response_id: str) -> dict[str, Any]:
        """Forget a response; one under way is ended.

        Raises:
            NotFoundError: there is none.
        """
        run = self._runs.get(response_id)
        if run is not None:
            await run.cancel()
        if not self._store.remove(response_id):
            raise _not_kept(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def cancel(self, response_id: str) -> dict[str, Any]:
        """End a response in the background; one that has ended is given as it is.

        Raises:
            NotFoundError: there is none.
            InvalidRequestError: it was not made in the background.
        """
        run = self._runs.get(response_id)
        if run is not None:
            await run.cancel()
            return run.writer.response()
        response = self._stored(response_id).response
        if not response["background"]:
            raise InvalidRequestError("only responses that were created with background can be cancelled")
        return response

    def input_items(self, response_id: str) -> list[Item]:
        """All that a response answered.

        Raises:
            NotFoundError: there is no such response.
        """
        run = self._runs.get(response_id)
        return self._stored(response_id).items if run is None else run.items

    def _start(self, prepared: PreparedResponse) -> BackgroundRun:
        run = BackgroundRun(prepared.writer, prepared.items, is_stream=prepared.stream)
        self._runs[prepared.writer.response_id] = run
        run.task = asyncio.create_task(self._work(run, prepared))
        # Not at the end of the work itself: one that is cancelled at once never begins.
        run.task.add_done_callback(lambda _: self._end(run, prepared))
        return run

    async def _work(self, run: BackgroundRun, prepared: PreparedResponse) -> None:
        writer = run.writer
        try:
            run.note(writer.begin())
            with _names(prepared.body):
                async with aclosing(self._service.stream(prepared.chat)) as steps:
                    async for step in steps:
                        run.note(writer.take(step))
                        if run.is_stream and step.finish is None:
                            self._check_streams()
        except Exception as error:
            run.note(writer.fail(_told(error)))

    def _check_streams(self) -> None:
        num_bytes = sum(run.size_bytes for run in self._runs.values())
        if num_bytes > self._max_stream_bytes:
            raise OverloadedError(
                f"the streams of responses in the background take {num_bytes} bytes; the limit of this server is"
                f" {self._max_stream_bytes}"
            )

    def _end(self, run: BackgroundRun, prepared: PreparedResponse) -> None:
        if run.task is not None and run.task.cancelled():
            run.writer.cancel()
        del self._runs[run.writer.response_id]
        self._keep(prepared, run.events)
        run.end()

    def _keep(self, prepared: PreparedResponse, events: list[bytes] | None = None) -> None:
        if prepared.body.store:
            response = prepared.writer.response()
            self._store.put(StoredResponse(response=response, items=prepared.items, events=events or []))

    def _history(self, previous_id: str | None) -> list[Item]:
        if previous_id is None:
            return []
        if previous_id in self._runs:
            raise InvalidRequestError(
                f"previous_response_id is {previous_id!r}, which is not finished", param="previous_response_id"
            )
        stored = self._store.get(previous_id)
        if stored is None:
            raise InvalidRequestError(
                f"previous_response_id is {previous_id[:80]!r}, which is not kept: it was never stored, was deleted, or"
                " made room for others",
                param="previous_response_id",
            )
        return [*stored.items, *map(_without_logprobs, stored.response["output"])]

    def _stored(self, response_id: str) -> StoredResponse:
        stored = self._store.get(response_id)
        if stored is None:
            raise _not_kept(response_id)
        return stored

    def _writer(self, body: ResponsesBody, response_id: str) -> ResponseWriter:
        shape = ChatShape(self._manager.tokenizer.vocabulary, logprobs=body.logprobs, num_top=body.num_top_logprobs)
        head = {
            "id": response_id,
            "object": "response",
            "created_at": int(time.time()),
            "model": self._manager.model_info.served_model_name,
            **body.shown,
        }
        entries = shape.token_entries if body.logprobs else None
        return ResponseWriter(head, token_entries=entries, summarizes=body.summarizes)


@contextmanager
def _names(body: ResponsesBody) -> Iterator[None]:
    with openai_names(prompt="input", constraint=body.constraint_field, limit="max_output_tokens"):
        yield


def _told(error: Exception) -> SglRuntimeError:
    return error if isinstance(error, SglRuntimeError) else internal_error(error)


def _not_kept(response_id: str) -> NotFoundError:
    return NotFoundError(
        f"the response {response_id[:80]!r} is not kept: it was never stored, was deleted, or made room"
    )


def _without_logprobs(item: Item) -> Item:
    if item["type"] != "message":
        return item
    return {**item, "content": [{**part, "logprobs": []} for part in item["content"]]}
