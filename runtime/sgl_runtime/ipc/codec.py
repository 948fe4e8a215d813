"""Codec: lists of messages to bytes and back, for the channels between processes."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from sgl_runtime.ipc.messages import DetokenizerOutput, SchedulerInput, SchedulerOutput

M = TypeVar("M")


class Codec(Generic[M]):
    """MessagePack of a list of messages; each message carries its type as a tag.

    Args:
        message_type: The union of message types that one direction of one channel carries.
    """

    def __init__(self, message_type: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(list[message_type])

    def encode(self, messages: Sequence[M]) -> bytes:
        """The bytes of a list of messages."""
        return self._encoder.encode(list(messages))

    def decode(self, data: bytes) -> list[M]:
        """The messages in `data`.

        Raises:
            msgspec.DecodeError: the bytes are no such list, or hold a message that this channel does not carry.
        """
        messages: list[M] = self._decoder.decode(data)
        return messages


def scheduler_input_codec() -> Codec[SchedulerInput]:
    """What the API sends to the scheduler."""
    return Codec(SchedulerInput)


def scheduler_output_codec() -> Codec[SchedulerOutput]:
    """What the scheduler sends to the detokenizer."""
    return Codec(SchedulerOutput)


def detokenizer_output_codec() -> Codec[DetokenizerOutput]:
    """What the detokenizer sends to the API."""
    return Codec(DetokenizerOutput)
