"""Iterators over what a state or one of its variables comes to, piece by piece, for threads and for tasks.

The pieces put together are the final text, always; no piece is empty.  An error reaches the consumer after the text
that came before it.  A caller that closes an iterator before its end ends the run: what is generated for it is aborted.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from sgl.scope import StateScope
from sgl.variable import Variable


class TextStream:
    """A reading position in the text of a state, or of a variable.

    Args:
        scope: The state.
        name: The variable; None for the text of the state.
    """

    def __init__(self, scope: StateScope, name: str | None) -> None:
        self._scope = scope
        self._progress = scope.context.progress
        self._name = name
        self._variable: Variable | None = None
        self._num_read = 0

    def pieces(self) -> Iterator[str]:
        """The text as it comes."""
        try:
            if self._name is not None:
                name = self._name
                self._scope.context.wait_for(lambda: self._scope.is_known(name))
                self._variable = self._scope.known_variable(name)
            while True:
                self._scope.context.wait_for(self._has_news)
                piece, _ = self._take()
                if not piece:
                    return
                yield piece
        except GeneratorExit:
            self._end_run()
            raise

    async def pieces_async(self) -> AsyncIterator[str]:
        """The text as it comes, for a task."""
        pairs = self.pieces_with_meta()
        async for piece, _ in pairs:
            try:
                yield piece
            except GeneratorExit:
                self._end_run()
                raise

    async def pieces_with_meta(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """The text as it comes, each piece with the meta info of its time (empty for the text of a state)."""
        try:
            if self._name is not None:
                name = self._name
                await self._progress.wait_for_async(lambda: self._scope.is_known(name))
                self._variable = self._scope.known_variable(name)
            while True:
                await self._progress.wait_for_async(self._has_news)
                piece, meta = self._take()
                if not piece:
                    return
                yield piece, meta
        except GeneratorExit:
            self._end_run()
            raise

    def _end_run(self) -> None:
        # The body may leave its own iterators as it likes: it goes on.
        if self._scope.is_outside and not self._scope.is_settled():
            self._scope.executor.cancel("was cancelled: a reader closed its iterator before the end")

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
            error = self._scope.executor.queue.error
            meta: dict[str, Any] = {}
            if self._variable is not None:
                # Text of which no value could be made is whole text all the same.
                error = None if self._variable.has_whole_text else self._variable.error
                meta = dict(self._variable.meta)
        if not piece and error is not None:
            raise error.with_traceback(None)
        return piece, meta

    def _text(self) -> str:
        return self._scope.executor.queue.transcript.text if self._variable is None else self._variable.text

    def _is_settled(self) -> bool:
        return self._scope.is_settled() if self._variable is None else self._variable.is_settled
