"""PrefixWarmup: lets the items of a batch share what their prompts begin with, without running a body twice."""

import asyncio
import logging

from sgl.backends.base import Backend, Prompt

logger = logging.getLogger(__name__)

MIN_PREFIX_CHARS = 64


class PrefixWarmup:
    """The first item to come to a call puts its prompt into the prefix cache; the calls of the others wait for that.

    Without it, items that start at the same time would all compute the prefix that they share.  Used on the event loop
    alone.
    """

    def __init__(self) -> None:
        self._commit: asyncio.Task[None] | None = None

    async def wait(self, backend: Backend, prompt: Prompt) -> None:
        """Wait until the first prompt is in the cache; at once for prompts too short to matter."""
        if self._commit is None:
            if len(prompt.pending) < MIN_PREFIX_CHARS:
                return
            self._commit = asyncio.ensure_future(self._put(backend, prompt))
        if not self._commit.done():
            # The item that started it may be cancelled; the others still wait for it.
            await asyncio.shield(self._commit)

    async def _put(self, backend: Backend, prompt: Prompt) -> None:
        try:
            await backend.commit(prompt)
        except Exception as error:
            # The calls themselves will meet the same trouble and report it with their place.
            logger.debug("prefix warm-up failed: %s", error)
