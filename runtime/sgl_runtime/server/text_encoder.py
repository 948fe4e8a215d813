"""TextEncoder: text to ids, long or many texts in threads beside the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from sgl_runtime.server.prompt_tokenizer import PromptTokenizer
from sgl_runtime.tokenizer.whole_text import WholeText

T = TypeVar("T")

_SHORT_TEXT = 4096
"""Characters that become ids in less time than a thread takes to wake: about half a millisecond."""

DEFAULT_WORKERS = 4


class TextEncoder:
    """Runs the tokenizer where it holds nobody up.

    The tokenizer lets other threads run while it works, so several workers use several cores.

    Args:
        tokenizer: Of the served model.
        num_workers: Most threads at a time.
    """

    def __init__(self, tokenizer: PromptTokenizer, *, num_workers: int) -> None:
        self._tokenizer = tokenizer
        # Threads start when they are first needed.
        self._workers = ThreadPoolExecutor(num_workers, thread_name_prefix="tokenizer")

    async def encode(self, text: str, *, add_bos: bool) -> list[int]:
        """Ids of a text."""
        if len(text) <= _SHORT_TEXT:
            return self._tokenizer.encode(text, add_bos=add_bos)
        return await self._run(len(text), lambda: self._tokenizer.encode(text, add_bos=add_bos))

    async def encode_whole(self, text: str, pair: str | None = None, *, max_length: int | None = None) -> WholeText:
        """Ids of a text, or of two, with the special tokens around them."""
        size = len(text) + len(pair or "")
        return await self._run(size, lambda: self._tokenizer.encode_whole(text, pair, max_length=max_length))

    async def encode_all(self, texts: Sequence[str], *, add_bos: bool) -> list[list[int]]:
        """Ids of many texts; the workers share them."""

        def run(part: Sequence[str]) -> list[list[int]]:
            return [self._tokenizer.encode(text, add_bos=add_bos) for text in part]

        parts = await asyncio.gather(*(self._run(size, partial(run, part)) for part, size in _parts(texts)))
        return [ids for part in parts for ids in part]

    def close(self) -> None:
        """End the threads."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def _run(self, size: int, work: Callable[[], T]) -> T:
        if size <= _SHORT_TEXT:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)


def _parts(texts: Sequence[str]) -> list[tuple[Sequence[str], int]]:
    """Runs of texts that are worth a thread, each with its characters."""
    parts: list[tuple[Sequence[str], int]] = []
    begin, size = 0, 0
    for index, text in enumerate(texts):
        size += len(text)
        if size > _SHORT_TEXT:
            parts.append((texts[begin : index + 1], size))
            begin, size = index + 1, 0
    if begin < len(texts):
        parts.append((texts[begin:], size))
    return parts
