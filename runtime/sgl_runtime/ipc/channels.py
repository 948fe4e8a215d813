"""Channels: one direction between two processes, over ZeroMQ sockets of kind `ipc://`.

The receiver binds and the sender connects: a sender may start first, never waits, and loses nothing, because
queues have no high-water mark.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import zmq

from sgl_runtime.ipc.codec import Codec

M = TypeVar("M")


@dataclass(frozen=True)
class Addresses:
    """Where each process receives.

    Attributes:
        scheduler, detokenizer, api: ZeroMQ addresses, named by the receiver.
    """

    scheduler: str
    detokenizer: str
    api: str

    @classmethod
    def in_folder(cls, folder: Path) -> "Addresses":
        """Sockets in a private folder."""
        return cls(*(f"ipc://{folder / name}" for name in ("scheduler", "detokenizer", "api")))


class PushChannel(Generic[M]):
    """The sending end.

    Args:
        context: The process's ZeroMQ context.
        address: The receiver's address.
        codec: How messages become bytes.
    """

    def __init__(self, context: "zmq.Context[Any]", address: str, codec: Codec[M]) -> None:
        self._socket = _socket(context, zmq.PUSH)
        self._socket.connect(address)
        self._codec = codec

    def send(self, messages: Sequence[M]) -> None:
        """Queue messages for the receiver; returns at once."""
        self._socket.send(self._codec.encode(messages), zmq.NOBLOCK)

    def close(self) -> None:
        """Close the socket; what was not sent yet is dropped."""
        self._socket.close()


class PullChannel(Generic[M]):
    """The receiving end of a plain loop.

    Args:
        context: The process's ZeroMQ context.
        address: Where to receive.
        codec: How bytes become messages.
    """

    def __init__(self, context: "zmq.Context[Any]", address: str, codec: Codec[M]) -> None:
        self._socket = _socket(context, zmq.PULL)
        self._socket.bind(address)
        self._codec = codec
        self._polled = [(self._socket, zmq.POLLIN)]

    @property
    def descriptor(self) -> int:
        """Becomes readable when messages may have come, and again only after a `drain`."""
        descriptor: int = self._socket.getsockopt(zmq.FD)
        return descriptor

    def wait(self, timeout_s: float) -> None:
        """Return when a message is there or the time is over."""
        zmq.zmq_poll(self._polled, int(timeout_s * 1000))

    def receive(self) -> list[M]:
        """The messages that come next, as they were sent together; waits for them."""
        return self._codec.decode(self._socket.recv())

    def drain(self) -> list[M]:
        """Every message that is there, without waiting."""
        messages: list[M] = []
        # Asked first: that nothing is left is the end of every drain, and an exception costs more than all of it.
        while zmq.zmq_poll(self._polled, 0):
            messages += self._codec.decode(self._socket.recv(zmq.NOBLOCK))
        return messages

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class LoopPullChannel(Generic[M]):
    """The receiving end of an event loop: messages are handed on as they come, without a task that waits for them.

    Args:
        context: The process's ZeroMQ context.
        address: Where to receive.
        codec: How bytes become messages.
    """

    def __init__(self, context: "zmq.Context[Any]", address: str, codec: Codec[M]) -> None:
        self._channel = PullChannel(context, address, codec)

    def open(self, deliver: Callable[[Sequence[M]], None]) -> None:
        """Begin to receive in the running loop.

        Args:
            deliver: Gets what has come, never nothing.
        """
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._loop.add_reader(self._channel.descriptor, self._receive)
        # The descriptor tells of changes: of what came before, it will not tell again.
        self._receive()

    def close(self) -> None:
        """Receive no more, and close the socket."""
        self._loop.remove_reader(self._channel.descriptor)
        self._channel.close()

    def _receive(self) -> None:
        # Until nothing is left, or the descriptor would stay silent.
        messages = self._channel.drain()
        if messages:
            self._deliver(messages)


def _socket(context: "zmq.Context[Any]", kind: int) -> Any:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    return socket
