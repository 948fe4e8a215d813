"""What a reply consists of, in order: the events that parsers give and every chat API shows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReasoningDelta:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True)
class ContentDelta:
    """More of the answer."""

    text: str


@dataclass(frozen=True)
class CallBegin:
    """A tool call begins; everything up to the next one belongs to it.

    Attributes:
        index: Its number in the reply, from 0 on.
        id: Its id, `call_` and 24 hexadecimal digits.
        name: The function.
    """

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class CallArguments:
    """More of the JSON text of a call's arguments.

    Attributes:
        index: Number of the call.
        text: What to append.
    """

    index: int
    text: str


ReplyEvent = ReasoningDelta | ContentDelta | CallBegin | CallArguments
