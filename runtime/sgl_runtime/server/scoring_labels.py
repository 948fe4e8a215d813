"""How likely each of some tokens follows a text: scores of a model that generates."""

import math
from collections.abc import Callable
from typing import Any

from sgl_runtime.errors import RequestAbortedError
from sgl_runtime.sampling_params import SamplingParams, reject
from sgl_runtime.server.encode_request import checked_input_text
from sgl_runtime.server.field_checks import MAX_INTEGER, checked_boolean, checked_fields, checked_integer, token_ids
from sgl_runtime.server.generate_request import GenerateRequest, check_number, new_rid
from sgl_runtime.server.pending_reply import PendingReply
from sgl_runtime.server.request_options import MAX_PROBE_IDS
from sgl_runtime.server.tokenizer_manager import TokenizerManager

LABEL_FIELDS = ("query", "items", "label_token_ids", "apply_softmax", "item_first")
"""The fields of this form of `/v1/score`."""


async def score_labels(manager: TokenizerManager, payload: Any) -> dict[str, Any]:
    """The reply of `/v1/score` for a query, items and label tokens.

    Each item is read with the query in front of it, or behind it; the probabilities are those of the next token.

    Raises:
        SglRuntimeError: the body is wrong, or a request failed.
    """
    fields = checked_fields(payload, (*LABEL_FIELDS, "model", "user", "priority"))
    labels = token_ids("label_token_ids", fields.get("label_token_ids"))
    if not 1 <= len(labels) <= MAX_PROBE_IDS:
        raise reject("label_token_ids", labels, f"a list of 1 to {MAX_PROBE_IDS} token ids")
    size = manager.model_info.vocab_size
    for index, token_id in enumerate(labels):
        if not 0 <= token_id < size:
            raise reject(f"label_token_ids[{index}]", token_id, f"from 0 to {size - 1}")
    apply_softmax = checked_boolean("apply_softmax", fields.get("apply_softmax", False))
    prompts = _prompts(fields)
    check_number(len(prompts), manager.max_live)
    priority = checked_integer("priority", fields.get("priority", 0), low=-MAX_INTEGER)
    async with manager.submit([_request(prompt, labels, priority) for prompt in prompts], stream=False) as submission:
        await submission.finish()
    scores = [_scores(pending, apply_softmax=apply_softmax) for pending in submission.pendings]
    count = sum(len(pending.input_ids) for pending in submission.pendings)
    return {
        "object": "scoring",
        "model": manager.model_info.served_model_name,
        "scores": scores,
        "usage": {"prompt_tokens": count, "completion_tokens": 0, "total_tokens": count},
    }


def _prompts(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Text or ids of each item with the query."""
    query, items = fields.get("query"), fields.get("items")
    item_first = checked_boolean("item_first", fields.get("item_first", False))
    is_text = isinstance(query, str)
    check: Callable[[str, Any], Any] = checked_input_text if is_text else token_ids
    front = check("query", query)
    if is_text and isinstance(items, str):
        items = [items]
    if not isinstance(items, list) or not items:
        raise reject("items", items, "a list of at least one item, texts or token ids as the query is")
    prompts = []
    for index, item in enumerate(items):
        checked = check(f"items[{index}]", item)
        prompts.append({"text" if is_text else "input_ids": checked + front if item_first else front + checked})
    return prompts


def _request(prompt: dict[str, Any], labels: list[int], priority: int) -> GenerateRequest:
    rid = new_rid()
    return GenerateRequest(
        rid=rid,
        client_rid=rid,
        text=prompt.get("text"),
        input_ids=prompt.get("input_ids"),
        # One token is drawn and dropped: what is wanted are the probabilities that it was drawn from.
        sampling=SamplingParams(max_new_tokens=1, temperature=0.0),
        return_logprob=True,
        token_ids_logprob=tuple(labels),
        priority=priority,
    )


def _scores(pending: PendingReply, *, apply_softmax: bool) -> list[float]:
    logprobs = pending.first_probes()
    if logprobs is None:
        raise RequestAbortedError("the request was aborted")
    highest = max(logprobs) if apply_softmax else 0.0
    values = [math.exp(logprob - highest) for logprob in logprobs]
    return [value / sum(values) for value in values] if apply_softmax else values
