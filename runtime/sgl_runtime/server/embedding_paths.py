"""Paths that give vectors as they are: `/encode` and `/v1/embeddings`."""

from collections.abc import Mapping, Sequence
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import SamplingParams, reject
from sgl_runtime.server.encode_prompts import required_pooling
from sgl_runtime.server.encode_request import ENCODE_OPTIONS, EncodeInput, encode_requests, parse_inputs
from sgl_runtime.server.field_checks import checked_fields
from sgl_runtime.server.generate_request import check_number
from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.pending_reply import PendingReply
from sgl_runtime.server.tokenizer_manager import TokenizerManager
from sgl_runtime.server.vectors import as_base64, checked_dimensions, embedding

ENCODE_FIELDS = ("text", "input_ids", "sampling_params", "dimensions", *ENCODE_OPTIONS)
EMBEDDINGS_FIELDS = ("input", "encoding_format", "dimensions", *ENCODE_OPTIONS)


class EmbeddingPaths:
    """Embeddings, in the form of the native protocol and in that of OpenAI's.

    Args:
        manager: Runs the requests.
    """

    def __init__(self, manager: TokenizerManager) -> None:
        self._manager = manager

    def paths(self) -> Mapping[str, NativePath]:
        """Each path, and how it is answered."""
        return {
            "/encode": NativePath(answer=self._encode),
            "/v1/embeddings": NativePath(answer=self._embeddings),
        }

    async def _encode(self, payload: Any) -> Any:
        """The vector of a text, or of several."""
        fields = checked_fields(payload, ENCODE_FIELDS)
        pooling = required_pooling(self._manager.model_info)
        given = [name for name in ("text", "input_ids") if name in fields]
        if len(given) != 1:
            raise InvalidRequestError("give either text or input_ids", param="text")
        if isinstance(fields.get("sampling_params"), list):
            raise reject("sampling_params", fields["sampling_params"], "an object: nothing is sampled")
        # Nothing is sampled, but what is wrong with the settings is said all the same.
        SamplingParams.from_dict(fields.get("sampling_params"))
        inputs, is_list = parse_inputs(given[0], fields[given[0]])
        dimensions = checked_dimensions(fields.get("dimensions"), pooling)
        pendings = await run_encode(self._manager, inputs, fields)
        replies = [
            {"embedding": embedding(pending, pooling, dimensions).tolist(), "meta_info": pending.meta_info()}
            for pending in pendings
        ]
        return [{**reply, "index": index} for index, reply in enumerate(replies)] if is_list else replies[0]

    async def _embeddings(self, payload: Any) -> dict[str, Any]:
        """Embeddings of texts or token ids, as OpenAI's clients ask for them."""
        fields = checked_fields(payload, EMBEDDINGS_FIELDS)
        info = self._manager.model_info
        pooling = required_pooling(info)
        if pooling.labels is not None:
            raise InvalidRequestError("the served model classifies texts; use /v1/classify, /v1/score or /v1/rerank")
        encoding = fields.get("encoding_format", "float")
        if encoding not in ("float", "base64"):
            raise reject("encoding_format", encoding, '"float" or "base64"')
        inputs, _ = parse_inputs("input", fields.get("input"))
        dimensions = checked_dimensions(fields.get("dimensions"), pooling)
        pendings = await run_encode(self._manager, inputs, fields)
        vectors = [embedding(pending, pooling, dimensions) for pending in pendings]
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": as_base64(vector) if encoding == "base64" else vector.tolist(),
            }
            for index, vector in enumerate(vectors)
        ]
        return {"object": "list", "data": data, "model": info.served_model_name, "usage": encode_usage(pendings)}


async def run_encode(
    manager: TokenizerManager, inputs: Sequence[EncodeInput], fields: dict[str, Any]
) -> Sequence[PendingReply]:
    """Run requests for vectors to their end.

    Args:
        manager: Runs them.
        inputs: One for each.
        fields: The body, for the options that all share.

    Raises:
        SglRuntimeError: one is wrong or failed.
    """
    check_number(len(inputs), manager.max_live)
    async with manager.submit(encode_requests(inputs, fields), stream=False) as submission:
        await submission.finish()
    return submission.pendings


def encode_usage(pendings: Sequence[PendingReply]) -> dict[str, int]:
    """Token counts of requests for vectors."""
    count = sum(len(pending.input_ids) for pending in pendings)
    return {"prompt_tokens": count, "total_tokens": count}
