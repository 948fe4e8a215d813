"""Frames: messages of known length over a socket, as the compile workers and their owner exchange them."""

import socket

_LENGTH_BYTES = 8


def send_frame(channel: socket.socket, data: bytes) -> None:
    """Send one message."""
    channel.sendall(len(data).to_bytes(_LENGTH_BYTES, "little") + data)


def receive_frame(channel: socket.socket) -> bytes:
    """Wait for one message.

    Raises:
        EOFError: the other side is gone.
        TimeoutError: the time that is set for the channel is over.
    """
    length = int.from_bytes(_receive(channel, _LENGTH_BYTES), "little")
    return _receive(channel, length)


def _receive(channel: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        try:
            chunk = channel.recv(min(count - len(data), 2**20))
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise EOFError("the other side of the channel is gone")
        data += chunk
    return bytes(data)
