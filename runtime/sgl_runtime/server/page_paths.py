"""Paths that the web page needs besides those that all clients use."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from sgl_runtime.errors import InvalidRequestError, SglRuntimeError
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.sampling_params import GRAMMAR_KINDS, MAX_CONSTRAINT, reject
from sgl_runtime.server.field_checks import checked_boolean, checked_fields, checked_integer, checked_text
from sgl_runtime.server.grammar_checker import GrammarChecker
from sgl_runtime.server.metrics import PREFIX
from sgl_runtime.server.native_path import NativePath
from sgl_runtime.server.request_books import RequestBooks
from sgl_runtime.server.request_views import inspection, summary
from sgl_runtime.server.tokenizer_manager import TokenizerManager

MAX_LISTED = 1000
MAX_SHOWN_TOKENS = 10_000

SCHEDULER_WAIT_S = 0.5
"""How long a look at the load waits for the scheduler, which may be in the middle of a long pass."""

_TOTALS = {
    "requests": "num_requests_received_total",
    "prompt_tokens": "prompt_tokens_total",
    "cached_tokens": "cached_tokens_total",
    "generation_tokens": "generation_tokens_total",
}
_TIMES = {
    "ttft": "time_to_first_token_seconds",
    "itl": "inter_token_latency_seconds",
    "queue": "queue_time_seconds",
    "e2e": "e2e_request_latency_seconds",
}
_SAMPLES = [
    *(PREFIX + name for name in _TOTALS.values()),
    *(PREFIX + name + "_bucket" for name in _TIMES.values()),
]


class PagePaths:
    """Live validation of constraints, the load from second to second, and a look into requests.

    Args:
        manager: Knows the requests and asks the scheduler.
        books: What is kept of requests; None where nothing is.
        checker: Checks constraints.
    """

    def __init__(self, manager: TokenizerManager, books: RequestBooks | None, checker: GrammarChecker) -> None:
        self._manager = manager
        self._books = books
        self._checker = checker

    def paths(self) -> Mapping[str, NativePath]:
        """Each path, and how it is answered."""
        return {
            "/validate_grammar": NativePath(answer=self._validate_grammar),
            "/live_stats": NativePath(answer=self._live_stats, methods=("GET",), takes_body=False),
            "/request_history": NativePath(answer=self._request_history, is_admin=True),
            "/inspect_request": NativePath(answer=self._inspect_request, is_admin=True),
        }

    async def _validate_grammar(self, payload: Any) -> dict[str, Any]:
        """Whether a constraint would be enforced, and if not, why and where."""
        fields = checked_fields(payload, (*GRAMMAR_KINDS, "json_schema_lenient"))
        kinds = [kind for kind in GRAMMAR_KINDS if kind in fields]
        if len(kinds) != 1:
            raise InvalidRequestError(
                f"{len(kinds)} constraints are given; give one of {', '.join(GRAMMAR_KINDS)}", param=GRAMMAR_KINDS[0]
            )
        kind = kinds[0]
        lenient = checked_boolean("json_schema_lenient", fields.get("json_schema_lenient", False))
        value = fields[kind]
        # Requests take these as JSON too.
        as_json = kind == "choices" or (kind in ("json_schema", "structural_tag") and not isinstance(value, str))
        text = json.dumps(value) if as_json else checked_text(kind, value)
        if not 0 < len(text) <= MAX_CONSTRAINT:
            raise reject(kind, f"{len(text)} characters", f"from 1 to {MAX_CONSTRAINT} characters")
        return await self._checker.check(GrammarSpec(kind, text, lenient))

    async def _live_stats(self, payload: Any) -> dict[str, Any]:
        """What the server does at this moment."""
        try:
            counters = await asyncio.wait_for(self._manager.questions.stats(), SCHEDULER_WAIT_S)
        except (TimeoutError, SglRuntimeError):
            counters = None
        reply = {"time": time.time(), "num_live": self._manager.num_live, "scheduler": counters}
        if self._books is None:
            return {**reply, "totals": None, "latencies": None}
        return {**reply, **_read_metrics(self._books.metrics.registry)}

    async def _request_history(self, payload: Any) -> dict[str, Any]:
        """The latest requests, as far as they are kept."""
        fields = checked_fields({} if payload is None else payload, ("limit",))
        limit = checked_integer("limit", fields.get("limit", MAX_LISTED), low=1, high=MAX_LISTED)
        if self._books is None:
            raise InvalidRequestError("nothing is kept of requests here; a server does that")
        history = self._books.history
        return {
            "capacity": history.capacity,
            "running": [summary(record) for record in history.running(limit)],
            "ended": [summary(record) for record in history.ended_requests(limit)],
        }

    async def _inspect_request(self, payload: Any) -> dict[str, Any]:
        """What the model saw and wrote in one request, token by token."""
        names = ("rid", "key", "prompt_begin", "output_begin", "limit")
        fields = checked_fields(payload, names)
        if ("rid" in fields) == ("key" in fields):
            raise InvalidRequestError("give either rid or key", param="rid")
        begins = {name: checked_integer(name, fields.get(name, 0), low=0) for name in ("prompt_begin", "output_begin")}
        limit = checked_integer("limit", fields.get("limit", 2000), low=1, high=MAX_SHOWN_TOKENS)
        if self._books is None:
            raise InvalidRequestError("nothing is kept of requests here; a server does that")
        history = self._books.history
        if "key" in fields:
            found = history.by_key(checked_integer("key", fields["key"], low=0))
        else:
            found = history.by_rid(checked_text("rid", fields["rid"]))
        if found is None:
            name = "rid" if "rid" in fields else "key"
            raise InvalidRequestError(
                f"{name} {str(fields[name])[:80]!r} is no request that is kept: it never came, or has given way to"
                f" later ones; --request-history is {history.capacity}",
                param=name,
            )
        return inspection(found, self._manager.tokenizer.vocabulary, limit=limit, **begins)


def _read_metrics(registry: CollectorRegistry) -> dict[str, Any]:
    """Totals and histograms since start, of the API process alone."""
    totals = dict.fromkeys(_TOTALS, 0)
    latencies: dict[str, dict[str, list[float]]] = {name: {"bounds": [], "counts": []} for name in _TIMES}
    total_names = {PREFIX + sample: name for name, sample in _TOTALS.items()}
    time_names = {PREFIX + sample + "_bucket": name for name, sample in _TIMES.items()}
    for metric in registry.restricted_registry(_SAMPLES).collect():
        for sample in metric.samples:
            if sample.name in total_names:
                totals[total_names[sample.name]] = int(sample.value)
            elif sample.name in time_names and sample.labels["le"] != "+Inf":
                found = latencies[time_names[sample.name]]
                found["bounds"].append(float(sample.labels["le"]))
                found["counts"].append(int(sample.value))
            elif sample.name in time_names:
                latencies[time_names[sample.name]]["counts"].append(int(sample.value))
    return {"totals": totals, "latencies": latencies}
