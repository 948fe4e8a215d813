"""What a chat call is answered with: steps, and the whole reply that they add up to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sgl_runtime.server.pending_reply import Update
from sgl_runtime.server.tool_parsers.events import CallArguments, CallBegin, ContentDelta, ReasoningDelta, ReplyEvent


@dataclass(frozen=True, kw_only=True)
class ChatUsage:
    """Token counts over all choices; a prompt counts once.

    Attributes:
        prompt_tokens: Of the prompt.
        completion_tokens: Generated.
        cached_tokens: Tokens of the prompt that were found in the prefix cache.
        reasoning_tokens: Generated tokens that belong to the thinking.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, kw_only=True)
class ChatFinish:
    """How a choice ended.

    Attributes:
        reason: stop, length, abort, or tool_calls: it stopped, and has made calls.
        matched: The stop that ended it: token id, text, or None.
    """

    reason: str
    matched: int | str | None


@dataclass(frozen=True, kw_only=True)
class ChatStep:
    """What is new in one choice.

    Attributes:
        index: Number of the choice.
        events: In order; may be empty.
        tokens: Generated since the step before, with log probabilities if they were asked for; its text is raw.
        finish: Set with the last step of the choice.
        usage: Counts so far.
    """

    index: int
    events: list[ReplyEvent]
    tokens: Update
    finish: ChatFinish | None
    usage: ChatUsage


@dataclass
class ToolCall:
    """A call.

    Attributes:
        id: Its id.
        name: The function.
        arguments: JSON text.
    """

    id: str
    name: str
    arguments: str = ""


@dataclass
class ChatChoice:
    """A whole choice.

    Attributes:
        index: Its number.
        reasoning, content: What was thought and answered.
        calls: Calls in order.
        tokens: All of its steps' tokens.
        finish: How it ended.
    """

    index: int
    reasoning: str = ""
    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    tokens: list[Update] = field(default_factory=list)
    finish: ChatFinish | None = None


@dataclass(frozen=True)
class ChatReply:
    """A whole reply."""

    choices: list[ChatChoice]
    usage: ChatUsage


class ChoiceFold:
    """Puts steps of one choice together.

    Args:
        index: Its number.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._events: list[ReplyEvent] = []
        self._tokens: list[Update] = []
        self._finish: ChatFinish | None = None

    def add(self, step: ChatStep) -> None:
        """Take the next step."""
        self._events += step.events
        self._tokens.append(step.tokens)
        self._finish = step.finish

    def choice(self) -> ChatChoice:
        """The choice as far as it came."""
        choice = joined(self._events, index=self._index)
        choice.tokens, choice.finish = self._tokens, self._finish
        return choice


def joined(events: Sequence[ReplyEvent], *, index: int = 0) -> ChatChoice:
    """The choice that events make, without its tokens and its end."""
    reasoning: list[str] = []
    content: list[str] = []
    calls: list[ToolCall] = []
    arguments: list[list[str]] = []
    for event in events:
        match event:
            case ReasoningDelta(text):
                reasoning.append(text)
            case ContentDelta(text):
                content.append(text)
            case CallBegin(_, call_id, name):
                calls.append(ToolCall(call_id, name))
                arguments.append([])
            case CallArguments(number, text):
                arguments[number].append(text)
    for call, parts in zip(calls, arguments, strict=True):
        call.arguments = "".join(parts)
    return ChatChoice(index, "".join(reasoning), "".join(content), calls)
