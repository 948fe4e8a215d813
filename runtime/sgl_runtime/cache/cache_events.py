"""CacheEvents: a bounded log of what happens in the prefix cache, for a viewer."""

import time
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from sgl_runtime.cache.radix_node import RadixNode
from sgl_runtime.cache.radix_tree import as_array

EVENT_LIMIT = 10_000
"""Events that are kept; of older ones only the number is known."""

EventKind = Literal["stored", "split", "to_host", "loaded", "removed", "cleared"]


@dataclass(frozen=True)
class CacheEvent:
    """One change of the tree.

    stored: a new node on the device.  split: `parent` is a new node that took the first `num_tokens` tokens of `node`
    and stands between it and what was its parent.  to_host: it left the device and is on the host.  loaded: it is on
    the device again.  removed: it is gone.  cleared: all nodes are gone.

    Attributes:
        number: Its place since start, from 0.
        kind: What happened.
        time_s: When, by the monotonic clock.
        node: Number of the node, -1 for all.
        parent: Number of its parent, -1 where it does not matter.
        num_tokens: Tokens it is about.
        ids: The tokens where they are new to a viewer, as the tree keeps them.
        extra_key: The extra key, where the node is new.
    """

    number: int
    kind: EventKind
    time_s: float
    node: int = -1
    parent: int = -1
    num_tokens: int = 0
    ids: bytes = b""
    extra_key: str | None = None

    @property
    def token_ids(self) -> list[int]:
        """The tokens where they are new to a viewer."""
        tokens: list[int] = as_array(self.ids).tolist()
        return tokens


class CacheEvents:
    """Keeps the newest events.

    Args:
        limit: How many are kept.
    """

    def __init__(self, *, limit: int = EVENT_LIMIT) -> None:
        self._events: deque[CacheEvent] = deque(maxlen=limit)
        self._num_events = 0

    def since(self, number: int) -> list[CacheEvent]:
        """The events from a number on that are still kept; a gap shows in the first one's number."""
        return [event for event in self._events if event.number >= number]

    def page(self, since: int, *, limit: int) -> dict[str, Any]:
        """Some events, as plain values, and from which number on to ask for the next."""
        events = list(islice(self.since(since), limit))
        shown = [
            {
                "number": event.number,
                "kind": event.kind,
                "time": event.time_s,
                "node": event.node,
                "parent": event.parent,
                "num_tokens": event.num_tokens,
                "token_ids": event.token_ids,
                "extra_key": event.extra_key,
            }
            for event in events
        ]
        return {"events": shown, "next": events[-1].number + 1 if events else max(since, self._num_events)}

    def stored(self, node: RadixNode, extra_key: str | None) -> None:
        """A node is new."""
        assert node.parent is not None, "a new node hangs on something"
        self._add("stored", node, parent=node.parent.serial, ids=node.ids, extra_key=extra_key)

    def split(self, upper: RadixNode, node: RadixNode) -> None:
        """A node was cut; `upper` is new."""
        self._add("split", node, parent=upper.serial, num_tokens=upper.num_tokens)

    def to_host(self, node: RadixNode) -> None:
        """A node left the device."""
        self._add("to_host", node)

    def loaded(self, node: RadixNode) -> None:
        """A node is on the device again."""
        self._add("loaded", node)

    def removed(self, node: RadixNode) -> None:
        """A node is gone."""
        self._add("removed", node)

    def cleared(self) -> None:
        """All nodes are gone."""
        self._add("cleared", None)

    def _add(
        self,
        kind: EventKind,
        node: RadixNode | None,
        *,
        parent: int = -1,
        num_tokens: int | None = None,
        ids: bytes = b"",
        extra_key: str | None = None,
    ) -> None:
        event = CacheEvent(
            number=self._num_events,
            kind=kind,
            time_s=time.monotonic(),
            node=-1 if node is None else node.serial,
            parent=parent,
            num_tokens=(0 if node is None else node.num_tokens) if num_tokens is None else num_tokens,
            ids=ids,
            extra_key=extra_key,
        )
        self._events.append(event)
        self._num_events += 1
