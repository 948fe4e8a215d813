"""NativeBackend: the client side of the native protocol (docs/protocol.md), over any transport.

Token ids cross the border: what the server has made of a text or generated goes back to it as ids.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

from sgl.backends.base import (
    PLAIN_AFFIXES,
    Backend,
    Generation,
    GenRequest,
    Message,
    Prompt,
    RoleAffixes,
    Selection,
)
from sgl.backends.choice_scoring import ChoiceScorer
from sgl.backends.model_facts import ModelFacts
from sgl.backends.payload import error_from_reply, new_rid, prompt_fields
from sgl.choices import ChoicesMethod, choice_probabilities
from sgl.errors import BackendError

logger = logging.getLogger(__name__)


@runtime_checkable
class Transport(Protocol):
    """What carries payloads to a server; an `Engine` is one as it stands."""

    async def call(self, path: str, payload: dict[str, Any]) -> Any:
        """Send a payload to a path of the protocol and return the reply."""

    def stream(self, path: str, payload: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Send a payload and give the events of the reply."""


class NativeBackend(Backend):
    """Speaks the native protocol.

    Args:
        transport: Carries the payloads.
        facts: What is known of the model; None for nothing yet.
    """

    def __init__(self, transport: Transport, *, facts: ModelFacts | None = None) -> None:
        self._transport = transport
        self._facts = facts or ModelFacts()
        self._aborts: set[asyncio.Task[Any]] = set()

    async def generate(self, request: GenRequest) -> Generation:
        """See `Backend`."""
        payload = _generate_payload(request)
        reply = await self._call(payload)
        return _generation(reply, request.prompt, payload)

    async def generate_stream(self, request: GenRequest) -> AsyncGenerator[Generation, None]:
        """See `Backend`."""
        payload = {**_generate_payload(request), "stream": True}
        outputs = _Outputs(payload["sampling_params"].get("n", 1))
        try:
            async for event in self._transport.stream("/generate", payload):
                if outputs.take(event):
                    reply = outputs.reply
                    generation = _generation(reply if outputs.are_complete else event, request.prompt, payload)
                    is_beginning = generation.prompt is not None and not outputs.are_complete
                    yield replace(generation, prompt=None) if is_beginning else generation
        except (asyncio.CancelledError, GeneratorExit):
            self._abort([payload["rid"]])
            raise
        if not outputs.are_complete:
            raise BackendError("the stream of /generate ended before the output was complete")

    async def select(self, prompt: Prompt, choices: Sequence[str], method: ChoicesMethod) -> Selection:
        """See `Backend`."""
        scorer = ChoiceScorer(generate=self._call, tokenize=partial(self._transport.call, "/tokenize"))
        scored, metas = await scorer.score(prompt, choices, needs_unconditional=method.needs_unconditional)
        decision = method(scored)
        meta = {
            "choices": list(choices),
            "scores": decision.scores,
            "probabilities": choice_probabilities(scored),
            "input_token_logprobs": [[list(token) for token in choice.tokens] for choice in scored],
            "prompt_tokens": sum(item["prompt_tokens"] for item in metas),
            "completion_tokens": 0,
            "cached_tokens": sum(item["cached_tokens"] for item in metas),
            "requests": metas,
            **decision.details,
        }
        if method.needs_unconditional:
            meta["unconditional_token_logprobs"] = [list(choice.unconditional or ()) for choice in scored]
        return Selection(index=decision.index, meta=meta)

    async def commit(self, prompt: Prompt) -> Prompt:
        """See `Backend`."""
        reply = await self._call({**prompt_fields(prompt), "sampling_params": {"max_new_tokens": 0}, "rid": new_rid()})
        _check_finished(reply)
        return Prompt(prompt.ids, prompt.pending, tuple(reply.get("text_ids", ())))

    async def role_affixes(self, messages: Sequence[Message], role: str) -> RoleAffixes:
        """See `Backend`.  Kept by the roles so far: a template puts the same text around the same roles."""
        if not await self._has_chat_template():
            return PLAIN_AFFIXES[role]
        key = (*(message["role"] for message in messages), role)
        if key not in self._facts.affixes:
            reply = await self._transport.call("/role_affixes", {"messages": list(messages), "role": role})
            self._facts.affixes[key] = RoleAffixes(reply["prefix"], reply["suffix"])
        return self._facts.affixes[key]

    async def flush_cache(self) -> bool:
        """See `Backend`."""
        reply = await self._transport.call("/flush_cache", {})
        if not reply["success"]:
            logger.warning("the prefix cache was not flushed: %s", reply["message"])
        return bool(reply["success"])

    async def get_server_info(self) -> dict[str, Any]:
        """See `Backend`."""
        info: dict[str, Any] = await self._transport.call("/get_server_info", {})
        return info

    @property
    def known_model_info(self) -> dict[str, Any] | None:
        """See `Backend`."""
        return self._facts.model_info

    async def get_model_info(self) -> dict[str, Any]:
        """What the server says of its model, asked for once."""
        if self._facts.model_info is None:
            self._facts.model_info = await self._transport.call("/get_model_info", {})
        return dict(self._facts.model_info or {})

    async def aclose(self) -> None:
        """See `Backend`.  Waits for aborts that are on their way."""
        await asyncio.gather(*self._aborts, return_exceptions=True)

    async def _call(self, payload: dict[str, Any]) -> Any:
        try:
            return await self._transport.call("/generate", payload)
        except asyncio.CancelledError:
            rid = payload["rid"]
            self._abort(rid if isinstance(rid, list) else [rid])
            raise

    def _abort(self, rids: list[str]) -> None:
        # The caller is being cancelled, so nobody waits for this: the task ends by itself, aclose() sees it off.
        for rid in rids:
            task = asyncio.ensure_future(self._transport.call("/abort_request", {"rid": rid}))
            self._aborts.add(task)
            task.add_done_callback(self._forget_abort)

    def _forget_abort(self, task: "asyncio.Task[Any]") -> None:
        self._aborts.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.debug("abort failed: %s", task.exception())

    async def _has_chat_template(self) -> bool:
        info = await self.get_model_info()
        if not info["has_chat_template"] and not self._facts.is_warned:
            self._facts.is_warned = True
            logger.warning(
                "model %s has no chat template: roles are written as plain SYSTEM:, USER: and ASSISTANT: lines, "
                "which it was probably not trained on",
                info["model_path"],
            )
        return bool(info["has_chat_template"])


def _generate_payload(request: GenRequest) -> dict[str, Any]:
    sampling = request.sampling.to_protocol()
    if request.constraint is not None:
        sampling[request.constraint.kind] = request.constraint.text
    if "json_schema" not in sampling:
        sampling.pop("json_schema_lenient", None)
    if request.shows_special_tokens:
        sampling["skip_special_tokens"] = False
    payload = {**prompt_fields(request.prompt), "sampling_params": sampling, "rid": new_rid()}
    payload.update(request.sampling.request_fields())
    if request.media:
        payload["image_data"] = list(request.media)
    return payload


class _Outputs:
    """The outputs of a stream, as far as they have come.

    Args:
        count: How many there are.
    """

    def __init__(self, count: int) -> None:
        self._latest: list[dict[str, Any] | None] = [None] * count

    @property
    def are_complete(self) -> bool:
        """Whether every output has ended."""
        return all(event is not None and event["meta_info"]["finish_reason"] is not None for event in self._latest)

    @property
    def reply(self) -> Any:
        """What a call that does not stream would have given."""
        return self._latest if len(self._latest) > 1 else self._latest[0]

    def take(self, event: dict[str, Any]) -> bool:
        """Take an event; whether there is something to show: more of the first output, the end, or an error."""
        if "error" in event:
            return True
        index = event.get("index", 0)
        self._latest[index] = event
        return index == 0 or self.are_complete


def _generation(reply: Any, prompt: Prompt, payload: dict[str, Any]) -> Generation:
    if isinstance(reply, list):
        first, *others = (_generation(each, prompt, payload) for each in reply)
        samples = [first.meta, *(other.meta for other in others)]
        total = sum(meta["completion_tokens"] for meta in samples)
        return replace(first, meta={**first.meta, "completion_tokens": total, "samples": samples}, others=tuple(others))
    if "error" in reply:
        raise error_from_reply(reply, status=None)
    meta = {**reply["meta_info"], "sampling_params": payload["sampling_params"]}
    if meta["finish_reason"] is None:
        return Generation(text=reply["text"], meta=meta, prompt=None)
    _check_finished(reply)
    ids = (*prompt.ids, *reply.get("text_ids", ()), *reply["text_output_ids"])
    prompt_after = Prompt(ids, reply["text_output_tail"])
    return Generation(text=reply["text"], meta=meta, prompt=prompt_after, output_ids=reply["output_ids"])


def _check_finished(reply: dict[str, Any]) -> None:
    reason = reply["meta_info"]["finish_reason"]
    if reason["type"] == "abort":
        raise BackendError(f"the request was aborted: {reason.get('message')}", status=499, code="aborted")
