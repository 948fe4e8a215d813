"""BackgroundLoop: an event loop in a thread of its own, for calls from plain code and from other loops."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from threading import Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Runs until `close`.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        """Call a function in the loop's thread."""
        self._loop.call_soon_threadsafe(callback, *args)

    def result(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait here; an interrupt here cancels it there."""
        future = self._submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def await_result(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and await it in the caller's loop; a cancellation here cancels it there."""
        return await asyncio.wrap_future(self._submit(work))

    async def iterate(self, items: AsyncGenerator[T, None]) -> AsyncIterator[T]:
        """The items of a generator that runs there, in the caller's loop."""
        remote = _RemoteItems(items)
        try:
            while (item := await self.await_result(remote.next())) is not _END:
                yield item
        finally:
            self._close_items(remote)

    def iterate_blocking(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """The items of a generator that runs there, for plain code."""
        remote = _RemoteItems(items)
        try:
            while (item := self.result(remote.next())) is not _END:
                yield item
        finally:
            self._close_items(remote)

    def close(self) -> None:
        """End the loop: what still runs in it is cancelled."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            # The loop has ended, and will not run it.
            work.close()
            raise

    def _close_items(self, remote: "_RemoteItems[Any]") -> None:
        # Not waited for: this may run wherever an abandoned iterator is collected, even in the loop's own thread.
        if not self._loop.is_closed():
            self._submit(remote.close())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


_END: Any = object()


class _RemoteItems(Generic[T]):
    """A generator that other threads ask for its next item.

    Closing it waits until a cancelled step has unwound: a generator that runs cannot be closed.
    """

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._lock = asyncio.Lock()

    async def next(self) -> T:
        # StopAsyncIteration cannot leave a coroutine, so the end is a value.
        async with self._lock:
            return await anext(self._items, _END)

    async def close(self) -> None:
        async with self._lock:
            await self._items.aclose()
