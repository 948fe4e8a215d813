"""RequestHistory: the latest requests, kept in memory for whoever looks into them; bounded in number and in bytes."""

import heapq
import itertools
import time
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from sgl_runtime.ipc.messages import FinishReason, GrammarReport, TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.server.request_watch import WatchedRequest

PAGE_PREFIX = "web-"
"""Requests whose rid begins so were sent by the web page, which shows them even where no others are kept."""

MAX_PAGE_REQUESTS = 100
MAX_BYTES = 64 * 2**20
"""Most bytes of each of the two: requests of the page, and all others."""

_FIXED_BYTES = 2048


@dataclass(frozen=True, kw_only=True)
class RequestRecord:
    """What is kept of a request.

    Attributes:
        key: Its number in this server.
        rid, client_rid: Its ids, see `GenerateRequest`.
        path: The HTTP path that it came by; None without one.
        request_id: Of the HTTP request; None without one.
        time: Seconds since the epoch at which it came.
        state: "running"; or why it ended: "stop", "length", "abort", the code of an error, or "left".
        error: What went wrong, in words.
        finish: How it finished; None where it did not.
        prompt_ids: The prompt; empty where it was given as embeddings.
        num_prompt_tokens, cached_tokens: Counts of the prompt.
        num_output: How many tokens were generated.
        output_ids: These; empty in a list of running requests, and so are the other lists of tokens there.
        forced_places: Which of these a grammar left no choice for.
        forced_tokens: How many of these took no pass.
        sampling: Its settings, the constraint among them.
        grammar: How the constraint was compiled; None without one.
        queue_s, first_s, total_s: Seconds from its arrival to its first pass, to its first token (0.0: none came), and
            to its end or until now.
    """

    key: int
    rid: str
    client_rid: str
    path: str | None
    request_id: str | None
    time: float
    state: str
    error: str | None
    finish: FinishReason | None
    prompt_ids: "array[int]"
    num_prompt_tokens: int
    cached_tokens: int
    num_output: int
    output_ids: "array[int]"
    forced_places: "array[int]"
    forced_tokens: int
    sampling: SamplingParams
    grammar: GrammarReport | None
    queue_s: float
    first_s: float
    total_s: float

    @property
    def is_page(self) -> bool:
        """Whether the web page sent it."""
        return self.client_rid.startswith(PAGE_PREFIX)

    @property
    def num_bytes(self) -> int:
        """About how much memory it takes."""
        arrays = (self.prompt_ids, self.output_ids, self.forced_places)
        texts = (self.sampling.json_schema, self.sampling.regex, self.sampling.ebnf, self.sampling.structural_tag)
        choices = sum(map(len, self.sampling.choices or ()))
        stops = sum(map(len, (*self.sampling.stop, *self.sampling.stop_regex)))
        text_bytes = 4 * (sum(len(text or "") for text in texts) + choices + stops + len(self.error or ""))
        return _FIXED_BYTES + sum(part.itemsize * len(part) for part in arrays) + text_bytes


class RequestHistory:
    """Implements `RequestWatcher`.

    Args:
        capacity: How many requests of others than the page are kept; 0 for none.
        max_page_requests: How many of the page.
        max_bytes: See `MAX_BYTES`.
    """

    def __init__(
        self, *, capacity: int, max_page_requests: int = MAX_PAGE_REQUESTS, max_bytes: int = MAX_BYTES
    ) -> None:
        self.capacity = capacity
        self._page = _Ring(max_page_requests, max_bytes)
        self._others = _Ring(capacity, max_bytes)
        self._running: dict[str, tuple[int, WatchedRequest]] = {}
        self._keys = itertools.count()

    def received(self, request: WatchedRequest) -> None:
        """See `RequestWatcher`."""
        if self.capacity or request.pending.request.client_rid.startswith(PAGE_PREFIX):
            self._running[request.message.rid] = next(self._keys), request

    def ended(self, request: WatchedRequest, *, reason: str) -> None:
        """See `RequestWatcher`."""
        known = self._running.pop(request.message.rid, None)
        if known is not None:
            record = _record(known[0], request, state=reason)
            (self._page if record.is_page else self._others).add(record)

    def running(self, limit: int) -> list[RequestRecord]:
        """The latest that have not ended, without their tokens, the latest first."""
        latest = itertools.islice(reversed(self._running.values()), limit)
        return [_record(key, request, state="running", with_tokens=False) for key, request in latest]

    def ended_requests(self, limit: int) -> list[RequestRecord]:
        """The latest that have ended, the latest first."""
        return list(itertools.islice(self._latest(), limit))

    def by_key(self, key: int) -> RequestRecord | None:
        """The request of this number; None where it is not kept."""
        for number, request in self._running.values():
            if number == key:
                return _record(key, request, state="running")
        return next((record for record in self._latest() if record.key == key), None)

    def by_rid(self, rid: str) -> RequestRecord | None:
        """The latest request of this rid, or of that of a client; None where there is none."""
        known = self._running.get(rid)
        if known is not None:
            return _record(*known, state="running")
        found = [record for record in self._latest() if rid in (record.rid, record.client_rid)]
        return next((record for record in found if record.rid == rid), found[0] if found else None)

    def _latest(self) -> Iterator[RequestRecord]:
        rings = (reversed(ring.records) for ring in (self._page, self._others))
        return heapq.merge(*rings, key=lambda record: -(record.time + record.total_s))


class _Ring:
    """Records up to a number and a size; the oldest give way.

    Args:
        capacity: Most records.
        max_bytes: Most bytes; a record that is larger by itself is not kept.
    """

    def __init__(self, capacity: int, max_bytes: int) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self.records: deque[RequestRecord] = deque()

    def add(self, record: RequestRecord) -> None:
        """Keep a record."""
        self.records.append(record)
        self._num_bytes += record.num_bytes
        while self.records and (len(self.records) > self._capacity or self._num_bytes > self._max_bytes):
            self._num_bytes -= self.records.popleft().num_bytes


def _record(key: int, request: WatchedRequest, *, state: str, with_tokens: bool = True) -> RequestRecord:
    pending, message, last = request.pending, request.message, request.pending.last
    total_s = time.monotonic() - pending.started_at

    def packed(ids: list[int]) -> "array[int]":
        return array("i", ids if with_tokens else [])

    return RequestRecord(
        key=key,
        rid=message.rid,
        client_rid=pending.request.client_rid,
        path=None if request.call is None else request.call.path,
        request_id=None if request.call is None else request.call.request_id,
        time=time.time() - total_s,
        state=state,
        error=None if pending.error is None else pending.error.message,
        finish=None if last is None else last.finish,
        prompt_ids=packed(pending.input_ids if message.input_embeds is None else []),
        num_prompt_tokens=_num_prompt_tokens(message, pending.input_ids),
        cached_tokens=0 if last is None else last.cached_tokens,
        num_output=pending.num_output,
        output_ids=packed(pending.output_ids),
        forced_places=packed(pending.forced_places),
        forced_tokens=0 if last is None else last.forced_tokens,
        sampling=message.sampling,
        grammar=None if last is None else last.grammar,
        queue_s=request.queue_time,
        first_s=request.first_at - pending.started_at if request.first_at else 0.0,
        total_s=total_s,
    )


def _num_prompt_tokens(message: TokenizedRequest, input_ids: list[int]) -> int:
    return message.num_prompt_tokens if message.input_embeds is not None else len(input_ids)
