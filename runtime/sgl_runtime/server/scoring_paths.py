"""Paths that compare texts, put documents in order, and say what a text is."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.model_info import PoolingInfo
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.embedding_paths import encode_usage, run_encode
from sgl_runtime.server.encode_prompts import required_pooling
from sgl_runtime.server.encode_request import ENCODE_OPTIONS, EncodeInput, checked_input_text, parse_inputs
from sgl_runtime.server.field_checks import checked_boolean, checked_fields, checked_integer
from sgl_runtime.server.generate_request import new_rid
from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.pending_reply import PendingReply
from sgl_runtime.server.scoring_labels import LABEL_FIELDS, score_labels
from sgl_runtime.server.tokenizer_manager import TokenizerManager
from sgl_runtime.server.vectors import cosine, normed, probabilities, raw_vector

RERANK_FIELDS = ("query", "documents", "top_n", "return_documents", *ENCODE_OPTIONS)
CLASSIFY_FIELDS = ("input", *ENCODE_OPTIONS)
PAIR_FIELDS = ("text_1", "text_2", *ENCODE_OPTIONS)


class ScoringPaths:
    """Rerank, classify and score.

    Args:
        manager: Runs the requests.
    """

    def __init__(self, manager: TokenizerManager) -> None:
        self._manager = manager

    def paths(self) -> Mapping[str, NativePath]:
        """Each path, and how it is answered."""
        rerank, classify, score = (NativePath(answer=one) for one in (self._rerank, self._classify, self._score))
        return {
            "/rerank": rerank,
            "/v1/rerank": rerank,
            "/classify": classify,
            "/v1/classify": classify,
            "/score": score,
            "/v1/score": score,
        }

    async def _rerank(self, payload: Any) -> dict[str, Any]:
        """Documents in the order of their relevance to a query."""
        fields = checked_fields(payload, RERANK_FIELDS)
        query = checked_input_text("query", fields.get("query"))
        given = fields.get("documents")
        if not isinstance(given, list) or not given:
            raise reject("documents", given, "a list of at least one text")
        documents = [_document(f"documents[{index}]", item) for index, item in enumerate(given)]
        top_n = checked_integer("top_n", fields.get("top_n", len(documents)), low=1)
        shown = checked_boolean("return_documents", fields.get("return_documents", True))
        fields_of = [f"documents[{index}]" for index in range(len(documents))]
        scores, pendings = await self._similarities(
            [query] * len(documents), documents, fields, field_names=(["query"] * len(documents), fields_of)
        )
        order = sorted(range(len(documents)), key=lambda index: -scores[index])[:top_n]
        results = [
            {
                "index": index,
                "relevance_score": scores[index],
                **({"document": {"text": documents[index]}} if shown else {}),
            }
            for index in order
        ]
        return {
            "id": f"rerank-{new_rid()}",
            "model": self._manager.model_info.served_model_name,
            "results": results,
            "usage": encode_usage(pendings),
        }

    async def _classify(self, payload: Any) -> dict[str, Any]:
        """What a text is, by the labels of the served model."""
        fields = checked_fields(payload, CLASSIFY_FIELDS)
        pooling = required_pooling(self._manager.model_info)
        if pooling.labels is None:
            raise InvalidRequestError("the served model has no labels; /v1/embeddings gives its vectors")
        inputs, _ = parse_inputs("input", fields.get("input"))
        pendings = await run_encode(self._manager, inputs, fields)
        data = [
            {"index": index, **_classified(pending, pooling, pooling.labels)} for index, pending in enumerate(pendings)
        ]
        return {**self._head("classify"), "data": data, "usage": encode_usage(pendings)}

    async def _score(self, payload: Any) -> dict[str, Any]:
        """How alike texts are (text_1, text_2), or how likely a token follows (query, items, label_token_ids)."""
        if isinstance(payload, dict) and payload.keys() & set(LABEL_FIELDS):
            return await score_labels(self._manager, payload)
        fields = checked_fields(payload, PAIR_FIELDS)
        first, second = (_texts(name, fields.get(name)) for name in ("text_1", "text_2"))
        names = [_names("text_1", fields["text_1"]), _names("text_2", fields["text_2"])]
        if len(first) == 1:
            first, names[0] = first * len(second), names[0] * len(second)
        if len(first) != len(second):
            raise InvalidRequestError(
                f"text_2 holds {len(second)} texts; text_1 holds {len(first)}: one, or as many", param="text_2"
            )
        scores, pendings = await self._similarities(first, second, fields, field_names=(names[0], names[1]))
        data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)]
        return {**self._head("score"), "data": data, "usage": encode_usage(pendings)}

    async def _similarities(
        self,
        first: Sequence[str],
        second: Sequence[str],
        fields: dict[str, Any],
        *,
        field_names: tuple[Sequence[str], Sequence[str]],
    ) -> tuple[list[float], Sequence[PendingReply]]:
        """The score of each pair of texts: that of the model's head, or the cosine of two embeddings.

        Args:
            first, second: The texts, as many of each.
            fields: The body.
            field_names: Where each of them stands in it.
        """
        pooling = required_pooling(self._manager.model_info)
        if pooling.labels is None:
            return await self._cosines(first, second, fields, field_names)
        if len(pooling.labels) != 1:
            raise InvalidRequestError(
                f"the served model has {len(pooling.labels)} labels; texts are compared by a model with one, or by one"
                " that makes embeddings"
            )
        inputs = [
            EncodeInput(field=field, text=text, pair=pair)
            for text, pair, field in zip(first, second, field_names[1], strict=True)
        ]
        pendings = await run_encode(self._manager, inputs, fields)
        scores = [float(probabilities(raw_vector(pending), pooling.activation)[0]) for pending in pendings]
        return scores, pendings

    async def _cosines(
        self,
        first: Sequence[str],
        second: Sequence[str],
        fields: dict[str, Any],
        field_names: tuple[Sequence[str], Sequence[str]],
    ) -> tuple[list[float], Sequence[PendingReply]]:
        # A text that comes again, as a query does, is read once.
        places: dict[str, int] = {}
        inputs: list[EncodeInput] = []
        for text, field in zip([*first, *second], [*field_names[0], *field_names[1]], strict=True):
            if text not in places:
                places[text] = len(inputs)
                inputs.append(EncodeInput(field=field, text=text))
        pendings = await run_encode(self._manager, inputs, fields)
        vectors = [normed(raw_vector(pending)) for pending in pendings]
        return [
            cosine(vectors[places[text]], vectors[places[other]]) for text, other in zip(first, second, strict=True)
        ], pendings

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{kind}-{new_rid()}",
            "object": "list",
            "created": int(time.time()),
            "model": self._manager.model_info.served_model_name,
        }


def _classified(pending: PendingReply, pooling: PoolingInfo, labels: list[str]) -> dict[str, Any]:
    probs = probabilities(raw_vector(pending), pooling.activation)
    return {"label": labels[int(probs.argmax())], "probs": probs.tolist(), "num_classes": len(labels)}


def _document(field: str, value: Any) -> str:
    """A text, or an object that holds one."""
    if isinstance(value, dict):
        return checked_input_text(f"{field}.text", checked_fields(value, ("text",), path=field).get("text"))
    return checked_input_text(field, value)


def _texts(field: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        return [checked_input_text(field, value)]
    if not value:
        raise InvalidRequestError(f"{field} is an empty list; it must hold at least one text", param=field)
    return [checked_input_text(f"{field}[{index}]", item) for index, item in enumerate(value)]


def _names(field: str, value: Any) -> list[str]:
    return [f"{field}[{index}]" for index in range(len(value))] if isinstance(value, list) else [field]
