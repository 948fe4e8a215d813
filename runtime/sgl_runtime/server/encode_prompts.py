"""EncodePrompts: requests for vectors as the scheduler takes them."""

import asyncio
import time

from sgl_runtime.errors import ContextLengthError, InvalidRequestError
from sgl_runtime.ipc.messages import TokenizedRequest
from sgl_runtime.model_info import ModelInfo, PoolingInfo
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.encode_request import TO_LIMIT
from sgl_runtime.server.generate_request import GenerateRequest, PoolingWish
from sgl_runtime.server.pending_reply import PendingReply
from sgl_runtime.server.text_encoder import TextEncoder
from sgl_runtime.tokenizer.whole_text import WholeText


class EncodePrompts:
    """Turns texts into ids, with the special tokens that the model was trained with, and checks their length.

    Args:
        texts: Gives the ids of a text.
        model_info: What the model reads.
        cuts: Whether a text that is too long is cut where the request says nothing.
    """

    def __init__(self, texts: TextEncoder, model_info: ModelInfo, *, cuts: bool) -> None:
        self._texts = texts
        self._info = model_info
        self._cuts = cuts

    async def message(self, pending: PendingReply, wish: PoolingWish) -> TokenizedRequest:
        """The message of a request for a vector.

        Raises:
            InvalidRequestError: the model generates, an id is not in the vocabulary, or the text is too long.
        """
        request, pooling = pending.request, required_pooling(self._info)
        limit = self._limit(wish)
        if request.text is None:
            whole = self._given_ids(request.input_ids, wish)
        else:
            whole = await self._encode(request.text, wish, max_length=limit)
        ids = whole.ids if limit is None else whole.ids[:limit]
        if len(ids) > self._info.context_length:
            raise ContextLengthError(
                f"{wish.field} has {len(ids)} tokens; the model reads at most {self._info.context_length}."
                " truncate_prompt_tokens cuts what is longer",
                param=wish.field,
            )
        if not ids:
            raise InvalidRequestError(f"{wish.field} has no tokens; it must have at least one", param=wish.field)
        pending.set_prompt(ids, ids)
        return TokenizedRequest(
            rid=request.rid,
            input_ids=ids,
            sampling=request.sampling,
            priority=request.priority,
            pooling=pooling.method,
            segment_start=whole.segment_start if pooling.reads_pairs else -1,
            arrival_time=time.monotonic(),
        )

    def _limit(self, wish: PoolingWish) -> int | None:
        """To how many tokens a text is cut; None where it is not."""
        context = self._info.context_length
        if wish.max_length is None:
            return context if self._cuts else None
        return context if wish.max_length == TO_LIMIT else min(wish.max_length, context)

    def _given_ids(self, ids: list[int] | None, wish: PoolingWish) -> WholeText:
        for position, token_id in enumerate(ids or ()):
            if not 0 <= token_id < self._info.vocab_size:
                raise reject(f"{wish.field}[{position}]", token_id, f"from 0 to {self._info.vocab_size - 1}")
        return WholeText(ids or [], -1)

    async def _encode(self, text: str, wish: PoolingWish, *, max_length: int | None) -> WholeText:
        # A body may hold very many texts: others get their turn between them.
        await asyncio.sleep(0)
        return await self._texts.encode_whole(text, wish.pair, max_length=max_length)


def required_pooling(info: ModelInfo) -> PoolingInfo:
    """What the served model does with a text.

    Raises:
        InvalidRequestError: it generates, and makes no vectors.
    """
    if info.pooling is None:
        raise InvalidRequestError(
            "the served model generates text and makes no vectors; start the server with --is-embedding to get them"
        )
    return info.pooling


def check_generates(request: GenerateRequest, info: ModelInfo) -> None:
    """See that the served model can do what is asked.

    Raises:
        InvalidRequestError: it makes vectors, and generates nothing.
    """
    if request.pooling is None and info.pooling is not None:
        raise InvalidRequestError(refusal_to_generate(info.pooling))


def refusal_to_generate(pooling: PoolingInfo) -> str:
    """Why a model that makes vectors does not generate, and what it does."""
    paths = "/v1/embeddings or /encode" if pooling.labels is None else "/v1/classify, /v1/score or /v1/rerank"
    return f"the served model makes vectors of texts and generates nothing; use {paths}"
