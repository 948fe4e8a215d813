"""ResponseStore: responses of /v1/responses that can be asked for again, in memory and within limits."""

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import msgspec

logger = logging.getLogger(__name__)

MAX_RESPONSES = 1024
MAX_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class StoredResponse:
    """A response that has ended.

    Attributes:
        response: The reply.
        items: All that it answered: the conversation before it, then its own input.
        events: Its stream, event by event as it was sent; empty where it was not made in the background as a stream.
        size_bytes: What it takes, as JSON.
    """

    response: dict[str, Any]
    items: list[dict[str, Any]]
    events: list[bytes] = field(default_factory=list)
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        size = len(msgspec.json.encode([self.response, self.items])) + sum(map(len, self.events))
        object.__setattr__(self, "size_bytes", size)


class ResponseStore:
    """Keeps the responses that were used last.

    What several responses of a conversation share is counted for each of them.

    Args:
        max_responses: Most of them.
        max_bytes: Most bytes of all.
    """

    def __init__(self, *, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: OrderedDict[str, StoredResponse] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, stored: StoredResponse) -> None:
        """Keep a response; those that were not used for longest make room."""
        if stored.size_bytes > self._max_bytes:
            logger.warning("response is not kept bytes=%d limit=%d", stored.size_bytes, self._max_bytes)
            return
        self._kept[stored.response["id"]] = stored
        self._num_bytes += stored.size_bytes
        while len(self._kept) > self._max_responses or self._num_bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._num_bytes -= oldest.size_bytes

    def get(self, response_id: str) -> StoredResponse | None:
        """A response; None where it is not kept."""
        stored = self._kept.get(response_id)
        if stored is not None:
            self._kept.move_to_end(response_id)
        return stored

    def remove(self, response_id: str) -> bool:
        """Forget a response; whether it was kept."""
        stored = self._kept.pop(response_id, None)
        if stored is None:
            return False
        self._num_bytes -= stored.size_bytes
        return True

    def check(self) -> None:
        """See that the limits hold and the books are right."""
        counted = sum(stored.size_bytes for stored in self._kept.values())
        assert counted == self._num_bytes <= self._max_bytes, f"{counted} bytes kept, {self._num_bytes} counted"
        assert len(self._kept) <= self._max_responses, f"{len(self._kept)} responses kept"
