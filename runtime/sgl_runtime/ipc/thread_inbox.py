"""ThreadInbox: the receiving end of a loop that runs in a thread of the sender's process."""

from collections import deque
from collections.abc import Sequence
from threading import Condition
from typing import Generic, TypeVar

M = TypeVar("M")


class ThreadInbox(Generic[M]):
    """A queue with the same two calls as `PullChannel`."""

    def __init__(self) -> None:
        self._messages: deque[M] = deque()
        self._changed = Condition()
        self._woken = False

    def put(self, messages: Sequence[M]) -> None:
        """Add messages and wake the reader."""
        with self._changed:
            self._messages.extend(messages)
            self._changed.notify()

    def wake(self) -> None:
        """End the reader's present wait, or its next one, without a message."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def wait(self, timeout_s: float) -> None:
        """Return when a message is there, on `wake`, or when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._woken, timeout_s)
            self._woken = False

    def drain(self) -> list[M]:
        """Every message that is there, without waiting."""
        with self._changed:
            messages = list(self._messages)
            self._messages.clear()
        return messages
