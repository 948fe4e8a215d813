"""Running the choices of a chat call: at once, or first the thinking and then the answer.

The second way is for answers under a constraint, which must not bind the thinking, and for thinking with a limit.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from msgspec import structs

from sgl_runtime.errors import ContextLengthError
from sgl_runtime.ipc.messages import FinishReason
from sgl_runtime.server.generate_request import GenerateRequest
from sgl_runtime.server.pending_reply import PendingReply, Update
from sgl_runtime.server.reasoning_parsers import ReasoningStyle
from sgl_runtime.server.tokenizer_manager import TokenizerManager

_UNCONSTRAINED = {"choices": None, "regex": None, "json_schema": None, "ebnf": None, "structural_tag": None}


@dataclass(frozen=True)
class Piece:
    """News of a choice.

    Attributes:
        index: Its number.
        text: What its parser reads next: the new text, and marks that were put in for the model.
        update: What is new; `finish` is set with the last piece of the choice.
        prompt_tokens, cached_tokens: Of its prompt.
        is_thinking: Whether all its tokens belong to the thinking.
    """

    index: int
    text: str
    update: Update
    prompt_tokens: int
    cached_tokens: int
    is_thinking: bool = False


async def run_at_once(
    manager: TokenizerManager, requests: Sequence[GenerateRequest], *, stream: bool
) -> AsyncGenerator[Piece, None]:
    """Run requests as they are.

    Raises:
        SglRuntimeError: a request is wrong or failed.
    """
    async with (
        manager.submit(requests, stream=stream) as submission,
        aclosing(submission.updates()) as updates,
    ):
        async for pending in updates:
            update = pending.take_update()
            yield _piece(pending, pending.index, update.text, update)


@dataclass(frozen=True)
class ThinkFirst:
    """How a choice thinks before its answer begins.

    Attributes:
        style: The model's marks.
        opening: What opens the thinking; empty where the prompt has done it.
        budget: Most tokens of it; None for as many as the whole reply may have.
    """

    style: ReasoningStyle
    opening: str
    budget: int | None = None


async def run_thinking_first(
    manager: TokenizerManager, requests: Sequence[GenerateRequest], how: ThinkFirst, *, stream: bool
) -> AsyncGenerator[Piece, None]:
    """Run each request as two: free text up to the mark that ends the thinking, then what was asked for.

    Raises:
        SglRuntimeError: a request is wrong or failed.
    """
    runs = [_think_then_answer(manager, request, index, how, stream=stream) for index, request in enumerate(requests)]
    pieces = runs[0] if len(runs) == 1 else _merged(runs)
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece


async def _think_then_answer(
    manager: TokenizerManager, request: GenerateRequest, index: int, how: ThinkFirst, *, stream: bool
) -> AsyncGenerator[Piece, None]:
    marks = how.style.marks
    # Each choice is a call of its own, so that one can answer while others think.
    request = structs.replace(request, client_rid=request.rid)
    limit = request.sampling.max_new_tokens
    is_short = how.budget is not None and (limit is None or how.budget < limit)
    sampling = structs.replace(
        request.sampling,
        stop=(marks.closing,),
        stop_regex=(),
        no_stop_trim=False,
        skip_special_tokens=False,
        json_schema_lenient=False,
        max_new_tokens=how.budget if is_short else limit,
        **_UNCONSTRAINED,
    )
    ids: list[int] = []
    prefix = how.opening
    thought = structs.replace(request, text=how.opening, sampling=sampling)
    async with manager.submit([thought], stream=stream) as submission:
        pending = submission.pendings[0]
        async with aclosing(submission.updates()) as updates:
            async for _ in updates:
                update = pending.take_update()
                ids += update.ids
                finish = update.finish
                if finish is not None and (finish.type == "stop" or (finish.type == "length" and is_short)):
                    break
                yield replace(_piece(pending, index, prefix + update.text, update), is_thinking=True)
                prefix = ""
                if finish is not None:
                    return
    assert pending.last is not None
    closing = marks.closing + marks.answer
    left = None if limit is None else limit - len(ids)
    head = replace(
        _piece(pending, index, prefix + update.text + closing, replace(update, finish=None)), is_thinking=True
    )
    if left is not None and left <= 0:
        yield replace(head, update=replace(update, finish=FinishReason(type="length")))
        return
    yield head
    answer = structs.replace(
        request,
        input_ids=[*pending.input_ids, *ids[: pending.last.num_text_ids]],
        text=pending.last.text_tail + closing,
        sampling=structs.replace(request.sampling, max_new_tokens=left),
        # The marks that were put in take room too.
        must_fit=False,
    )
    try:
        async with aclosing(run_at_once(manager, [answer], stream=stream)) as pieces:
            async for piece in pieces:
                yield replace(piece, index=index, prompt_tokens=head.prompt_tokens, cached_tokens=head.cached_tokens)
    except ContextLengthError:
        yield replace(head, text="", update=Update("", [], [], [], FinishReason(type="length")))


async def _merged(runs: Sequence[AsyncGenerator[Piece, None]]) -> AsyncGenerator[Piece, None]:
    """What several runs give, as it comes; the first error ends all."""
    queue: asyncio.Queue[Piece | None] = asyncio.Queue(maxsize=2 * len(runs))

    async def forward(run: AsyncGenerator[Piece, None]) -> None:
        try:
            async with aclosing(run):
                async for piece in run:
                    await queue.put(piece)
        finally:
            await queue.put(None)

    tasks = [asyncio.create_task(forward(run)) for run in runs]
    try:
        num_open = len(tasks)
        while num_open:
            piece = await queue.get()
            if piece is not None:
                yield piece
                continue
            num_open -= 1
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _piece(pending: PendingReply, index: int, text: str, update: Update) -> Piece:
    cached = 0 if pending.last is None else pending.last.cached_tokens
    return Piece(index, text, update, len(pending.input_ids), cached)
