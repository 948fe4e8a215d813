"""Transcript: what a state has come to, as the nodes that ran have left it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sgl.backends.base import Dialogue, Message, Prompt, RoleAffixes


@dataclass(frozen=True)
class Span:
    """A part of the text.

    Attributes:
        start, end: Where it begins, and where what follows begins.
        urls: The images that it stands for; none for thinking, which is only told apart.
    """

    start: int
    end: int
    urls: tuple[str, ...] = ()

    def moved(self, offset: int) -> "Span":
        """The same part of a text that begins elsewhere."""
        return replace(self, start=self.start + offset, end=self.end + offset)


@dataclass(frozen=True)
class OpenMessage:
    """A message whose role was opened.

    Attributes:
        role: Its role.
        start: Where its content begins in the text.
        suffix: What closes it.
        prompt: What stood before its content, without a mark that opens thinking.
    """

    role: str
    start: int
    suffix: str
    prompt: Prompt


@dataclass(frozen=True)
class Addition:
    """What came to a state after it began.

    Attributes:
        text: The text.
        messages: The messages in it.
        spans: Thinking and media in it.
    """

    text: str
    messages: Sequence[Message]
    spans: Sequence[Span]


@dataclass
class Transcript:
    """Prompt, text and messages of a state.

    Attributes:
        prompt: What the next call goes on from.
        text: All text, constant and generated.
        messages: The closed messages; text outside of roles is in `text` alone.
        open_message: The message whose role is open.
        has_loose_text: Whether there is text, other than white space, or an image outside of roles.
        spans: Where there is thinking or an image, in order.
    """

    prompt: Prompt = field(default_factory=Prompt)
    text: str = ""
    messages: list[Message] = field(default_factory=list)
    open_message: OpenMessage | None = None
    has_loose_text: bool = False
    spans: list[Span] = field(default_factory=list)

    def append(self, text: str) -> None:
        """Put constant text behind."""
        if self.open_message is None and not self.has_loose_text:
            self.has_loose_text = bool(text.strip())
        self._extend(text)

    def append_media(self, placeholder: str, urls: tuple[str, ...]) -> None:
        """Put an image, or the images of a video, behind; the text has a placeholder."""
        self.has_loose_text = self.has_loose_text or self.open_message is None
        start = len(self.text)
        self._extend(placeholder)
        self.spans.append(Span(start, len(self.text), urls))

    def append_joined(self, addition: Addition) -> None:
        """Put behind what came to a branch; thinking of messages that it closed is no part of the prompt."""
        begin = len(self.text)
        thinking = [span for span in addition.spans if not span.urls] if addition.messages else []
        if addition.messages:
            self.messages.extend(addition.messages)
        elif self.open_message is None and not self.has_loose_text:
            self.has_loose_text = bool(addition.text.strip())
        self.prompt = self.prompt.append(_without(addition.text, 0, thinking))
        self.text += addition.text
        self.spans += [span.moved(begin) for span in addition.spans]

    def begin_message(self, role: str, affixes: RoleAffixes) -> None:
        """Open a message."""
        assert self.open_message is None, "roles are checked when they are appended"
        self._extend(affixes.prefix)
        self.open_message = OpenMessage(role, len(self.text), affixes.suffix, self.prompt)

    @property
    def open_suffix(self) -> str:
        """What will close the open message."""
        assert self.open_message is not None, "roles are checked when they are appended"
        return self.open_message.suffix

    def end_message(self) -> None:
        """Close the open message.

        The thinking in it is no part of the message, and later prompts go on without it, as chat templates do.
        """
        message = self.open_message
        assert message is not None, "roles are checked when they are appended"
        if self.has_thought:
            self.prompt = message.prompt.append(self._open_text())
        self.messages.append({"role": message.role, "content": self._open_content()})
        self.open_message = None
        self._extend(message.suffix)

    def begin_thinking(self, opening: str) -> None:
        """Thinking follows; puts its mark behind unless the text ends with it."""
        mark = opening.strip()
        if mark and self.text.rstrip().endswith(mark):
            message = self.open_message
            if message is not None and len(self.text) == message.start:
                # The chat template has opened it: later prompts do not have the mark either.
                bare = message.prompt.pending.rstrip().removesuffix(mark)
                self.open_message = replace(message, prompt=replace(message.prompt, pending=bare, pending_ids=None))
        else:
            self._extend(opening)

    def note_thinking(self, start: int, end: int) -> None:
        """This part of the text is thinking with its marks."""
        self.spans.append(Span(start, end))

    @property
    def has_thought(self) -> bool:
        """Whether there is thinking in the open message."""
        message = self.open_message
        return message is not None and any(not span.urls for span in self._spans_from(message.start))

    @property
    def media(self) -> tuple[str, ...]:
        """All images, in order."""
        return tuple(url for span in self.spans for url in span.urls)

    def dialogue(self, *, without_open_text: bool = False) -> Dialogue:
        """What there is so far, as messages.

        Args:
            without_open_text: Leave out what is in the open message.
        """
        message = self.open_message
        return Dialogue(
            messages=tuple(self.messages),
            open_role=message.role if message is not None else None,
            open_text=self._open_text() if message is not None and not without_open_text else "",
            has_open_media=message is not None and any(span.urls for span in self._spans_from(message.start)),
            has_loose_text=self.has_loose_text,
        )

    def added_since(self, num_chars: int, num_messages: int) -> Addition:
        """What came after the text and the messages had these numbers."""
        spans = [span.moved(-num_chars) for span in self._spans_from(num_chars)]
        return Addition(self.text[num_chars:], self.messages[num_messages:], spans)

    def copy(self) -> "Transcript":
        """A transcript that goes its own way from here."""
        return replace(self, messages=list(self.messages), spans=list(self.spans))

    def _extend(self, text: str) -> None:
        self.prompt = self.prompt.append(text)
        self.text += text

    def _spans_from(self, start: int) -> list[Span]:
        return [span for span in self.spans if span.end > start]

    def _open_text(self) -> str:
        """The content of the open message, without its thinking."""
        assert self.open_message is not None, "there is an open message"
        start = self.open_message.start
        return _without(self.text[start:], start, [span for span in self._spans_from(start) if not span.urls])

    def _open_content(self) -> str | list[dict[str, Any]]:
        """The content of the open message: text, or with images a list of parts."""
        assert self.open_message is not None, "there is an open message"
        start = self.open_message.start
        spans = self._spans_from(start)
        if not any(span.urls for span in spans):
            return self._open_text()
        parts: list[dict[str, Any]] = []
        for span in (*spans, Span(len(self.text), len(self.text))):
            if text := self.text[start : max(start, span.start)]:
                parts.append({"type": "text", "text": text})
            parts += [{"type": "image_url", "image_url": {"url": url}} for url in span.urls]
            start = span.end
        return parts


def _without(text: str, begin: int, spans: Sequence[Span]) -> str:
    """A text that begins at `begin` without these parts."""
    for span in reversed(spans):
        text = text[: max(span.start - begin, 0)] + text[span.end - begin :]
    return text
