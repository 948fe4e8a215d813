"""Transcript: what a state has come to, as the nodes that ran have left it."""

from dataclasses import dataclass, field, replace

from sgl.backends.base import Message, Prompt, RoleAffixes


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
    """

    prompt: Prompt = field(default_factory=Prompt)
    text: str = ""
    messages: list[Message] = field(default_factory=list)
    open_message: OpenMessage | None = None

    def append(self, text: str) -> None:
        """Put constant text behind."""
        self.prompt = self.prompt.append(text)
        self.text += text

    def begin_message(self, role: str, affixes: RoleAffixes) -> None:
        """Open a message."""
        assert self.open_message is None, "roles are checked when they are appended"
        self.append(affixes.prefix)
        self.open_message = OpenMessage(role, len(self.text), affixes.suffix)

    def end_message(self) -> None:
        """Close the open message."""
        message = self.open_message
        assert message is not None, "roles are checked when they are appended"
        self.messages.append({"role": message.role, "content": self.text[message.start :]})
        self.open_message = None
        self.append(message.suffix)

    def copy(self) -> "Transcript":
        """A transcript that goes its own way from here."""
        return replace(self, messages=list(self.messages))
