"""Transcript: what a state has come to, as the nodes that ran have left it."""

from dataclasses import dataclass, field, replace

from sgl.backends.base import Dialogue, Message, Prompt, RoleAffixes


@dataclass(frozen=True)
class OpenMessage:
    """A message whose role was opened.

    Attributes:
        role: Its role.
        start: Where its content begins in the text.
        suffix: What closes it.
    """

    role: str
    start: int
    suffix: str


@dataclass
class Transcript:
    """Prompt, text and messages of a state.

    Attributes:
        prompt: What the next call goes on from.
        text: All text, constant and generated.
        messages: The closed messages; text outside of roles is in `text` alone.
        open_message: The message whose role is open.
        has_loose_text: Whether there is text, other than white space, outside of roles.
    """

    prompt: Prompt = field(default_factory=Prompt)
    text: str = ""
    messages: list[Message] = field(default_factory=list)
    open_message: OpenMessage | None = None
    has_loose_text: bool = False

    def append(self, text: str) -> None:
        """Put constant text behind."""
        if self.open_message is None and not self.has_loose_text:
            self.has_loose_text = bool(text.strip())
        self._extend(text)

    def append_joined(self, text: str, messages: list[Message]) -> None:
        """Put the text of a joined branch behind, and the messages that are in it."""
        if messages:
            self._extend(text)
            self.messages.extend(messages)
        else:
            self.append(text)

    def begin_message(self, role: str, affixes: RoleAffixes) -> None:
        """Open a message."""
        assert self.open_message is None, "roles are checked when they are appended"
        self._extend(affixes.prefix)
        self.open_message = OpenMessage(role, len(self.text), affixes.suffix)

    def end_message(self) -> None:
        """Close the open message."""
        message = self.open_message
        assert message is not None, "roles are checked when they are appended"
        self.messages.append({"role": message.role, "content": self.text[message.start :]})
        self.open_message = None
        self._extend(message.suffix)

    def dialogue(self) -> Dialogue:
        """What there is so far, as messages."""
        message = self.open_message
        return Dialogue(
            messages=tuple(self.messages),
            open_role=message.role if message is not None else None,
            open_text=self.text[message.start :] if message is not None else "",
            has_loose_text=self.has_loose_text,
        )

    def copy(self) -> "Transcript":
        """A transcript that goes its own way from here."""
        return replace(self, messages=list(self.messages))

    def _extend(self, text: str) -> None:
        self.prompt = self.prompt.append(text)
        self.text += text
