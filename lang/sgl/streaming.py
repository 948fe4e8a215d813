"""Iterators over what a state or one of its variables comes to, piece by piece, for threads and for tasks.

The pieces put together are the final text, always; no piece is empty.  An error reaches the consumer after the text
that came before it.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from sgl.executor import StateExecutor
from sgl.variable import Variable


class TextStream:
    """A reading position in the text of a state, or of a variable.

    Args:
        executor: The state.
        name: The variable; None for the text of the state.
    """

    def __init__(self, executor: StateExecutor, name: str | None) -> None:
        self._executor = executor
        self._progress = executor.context.progress
        self._name = name
        self._variable: Variable | None = None
        self._num_read = 0

    def pieces(self) -> Iterator[str]:
        """The text as it comes."""
        if self._name is not None:
            self._variable = self._executor.variable(self._name)
        while True:
            self._progress.wait_for(self._has_news)
            piece, _ = self._take()
            if not piece:
                return
            yield piece

    async def pieces_async(self) -> AsyncIterator[str]:
        """The text as it comes, for a task."""
        async for piece, _ in self.pieces_with_meta():
            yield piece

    async def pieces_with_meta(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """The text as it comes, each piece with the meta info of its time (empty for the text of a state)."""
        if self._name is not None:
            name = self._name
            await self._progress.wait_for_async(lambda: self._executor.is_known(name))
            self._variable = self._executor.known_variable(name)
        while True:
            await self._progress.wait_for_async(self._has_news)
            piece, meta = self._take()
            if not piece:
                return
            yield piece, meta

    def _has_news(self) -> bool:
        return len(self._text()) > self._num_read or self._is_settled()

    def _take(self) -> tuple[str, dict[str, Any]]:
        """The unread text and its meta info; an empty text says that all was read.

        Raises:
            SglError: all was read, and it ended in an error.
        """
        with self._progress.look():
            piece = self._text()[self._num_read :]
            self._num_read += len(piece)
            error = self._executor.queue.error if self._variable is None else self._variable.error
            meta = {} if self._variable is None else dict(self._variable.meta)
        if not piece and error is not None:
            raise error.with_traceback(None)
        return piece, meta

    def _text(self) -> str:
        return self._executor.queue.transcript.text if self._variable is None else self._variable.text

    def _is_settled(self) -> bool:
        return self._executor.is_settled() if self._variable is None else self._variable.is_settled
