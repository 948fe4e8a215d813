"""FileReader: tensors brought from files to a device by several threads, through a bounded piece of host memory."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

import torch
from torch import Tensor

PIECE_BYTES = 32 << 20
"""What a thread reads and sends at a time, and so how much host memory each of them takes."""

AHEAD_BYTES = 2 << 30
"""Most bytes of tensors that are under way or waited for, beyond the one that is wanted next."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file, its numbers one after another.

    Attributes:
        path: The file.
        offset: Where in it the tensor begins, in bytes.
        shape, dtype: Of the tensor.
    """

    path: str
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype


class Lane(Protocol):
    """A way to the device that one thread uses at a time.

    Attributes:
        buffer: (PIECE_BYTES,) uint8 in host memory, from which copies to the device are fast.
    """

    buffer: Tensor

    def send(self, target: Tensor, after: Any) -> None:
        """Copy the beginning of the buffer; when this returns, it is done.

        Args:
            target: (n,) uint8 on the device.
            after: What `mark` gave when the target was made.
        """


class FileReader:
    """Reads tensors.

    Args:
        lanes: One for each thread.
        device: Where tensors go.
        mark: Notes the work of the device that comes before what is read: memory may still be in use by it.
        begin_thread: Called first in every thread.
    """

    def __init__(
        self,
        lanes: Iterable[Lane],
        *,
        device: torch.device,
        mark: Callable[[], Any],
        begin_thread: Callable[[], None],
    ) -> None:
        self._lanes: SimpleQueue[Lane] = SimpleQueue()
        for lane in lanes:
            self._lanes.put(lane)
        self._num_threads = self._lanes.qsize()
        self._device, self._mark, self._begin_thread = device, mark, begin_thread

    def read(self, tensors: Iterable[StoredTensor]) -> Iterator[Tensor]:
        """The tensors in their order, each on the device; the next ones are read meanwhile.

        Raises:
            OSError: a file cannot be read, or ends too early.
        """
        pool = ThreadPoolExecutor(self._num_threads, "sgl weights", self._begin_thread)
        under_way: deque[tuple[Tensor, list[Future[None]]]] = deque()
        num_bytes = 0
        try:
            for stored in tensors:
                target = torch.empty(stored.shape, dtype=stored.dtype, device=self._device)
                under_way.append((target, self._start(pool, stored, target)))
                num_bytes += target.nbytes
                while num_bytes > AHEAD_BYTES and len(under_way) > 1:
                    num_bytes -= under_way[0][0].nbytes
                    yield _arrived(*under_way.popleft())
            while under_way:
                yield _arrived(*under_way.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _start(self, pool: ThreadPoolExecutor, stored: StoredTensor, target: Tensor) -> list[Future[None]]:
        numbers = target.reshape(-1).view(torch.uint8)
        after = self._mark()
        return [
            pool.submit(self._bring, stored, begin, numbers[begin : begin + PIECE_BYTES], after)
            for begin in range(0, len(numbers), PIECE_BYTES)
        ]

    def _bring(self, stored: StoredTensor, begin: int, target: Tensor, after: Any) -> None:
        lane = self._lanes.get()
        try:
            _read_into(lane.buffer.numpy()[: len(target)].data, stored.path, stored.offset + begin)
            lane.send(target, after)
        finally:
            self._lanes.put(lane)


def _arrived(target: Tensor, pieces: list[Future[None]]) -> Tensor:
    for piece in pieces:
        piece.result()
    return target


def _read_into(view: memoryview, path: str, offset: int) -> None:
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        done = 0
        while done < len(view):
            count = file.readinto(view[done:])
            if not count:
                raise OSError(f"{path} ends at byte {offset + done}; {len(view) - done} bytes more are expected there")
            done += count
