"""ChatTemplate: the text around messages, for models whose server does not say it.

The served model's own template is the authority.  A template of this module takes its place where one is given: to a
run (`chat_template=...`), or to a backend, such as one that completes text for a chat model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from sgl.errors import reject


@dataclass(frozen=True)
class RoleAffixes:
    """The text that a chat template puts around the content of a message."""

    prefix: str
    suffix: str


class ChatTemplateStyle(Enum):
    """How messages stand behind each other."""

    PLAIN = auto()
    LLAMA2 = auto()
    """The system message stands inside of the first user message."""


@dataclass(frozen=True)
class ChatTemplate:
    """The text around messages.

    Attributes:
        name: How errors call it.
        default_system_prompt: System message in front of a dialogue that begins without one; None for none.
        role_prefix_and_suffix: For each role what stands before and after its content.
        stop_str: Strings that end an assistant's message; gens stop there too.
        image_token: What stands for an image in the text.
        audio_token: Kept for programs that pass it: there is no audio here.
        style: How messages stand behind each other.
    """

    name: str
    default_system_prompt: str | None
    role_prefix_and_suffix: Mapping[str, tuple[str, str]]
    stop_str: Sequence[str] = ()
    image_token: str = "<image>"
    audio_token: str = "<audio>"
    style: ChatTemplateStyle = ChatTemplateStyle.PLAIN

    def affixes(self, messages: Sequence[Mapping[str, Any]], role: str) -> RoleAffixes:
        """The text around a message of this role that follows these messages."""
        prefix, suffix = self.role_prefix_and_suffix[role]
        before, after = self.role_prefix_and_suffix["system"]
        is_first = not messages
        if self.style is ChatTemplateStyle.LLAMA2:
            opening = self.role_prefix_and_suffix["user"][0]
            if role == "system" and is_first:
                return RoleAffixes(opening + prefix, suffix)
            if role == "user" and [message["role"] for message in messages] == ["system"]:
                return RoleAffixes("", suffix)
            before = opening + before
            prefix = prefix if self.default_system_prompt is None or not is_first or role != "user" else ""
        if is_first and role != "system" and self.default_system_prompt is not None:
            prefix = before + self.default_system_prompt + after + prefix
        return RoleAffixes(prefix, suffix)


def _chatml(name: str) -> ChatTemplate:
    affixes = {role: (f"<|im_start|>{role}\n", "<|im_end|>\n") for role in ("system", "user", "assistant")}
    return ChatTemplate(name, None, affixes, ("<|im_end|>",))


def _llama_3(role: str) -> tuple[str, str]:
    return (f"<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>")


_TEMPLATES = {
    template.name: template
    for template in (
        ChatTemplate(
            "default",
            None,
            {"system": ("SYSTEM:", "\n"), "user": ("USER:", "\n"), "assistant": ("ASSISTANT:", "\n")},
        ),
        _chatml("chatml"),
        ChatTemplate(
            "llama-2-chat",
            None,
            {"system": ("<<SYS>>\n", "\n<</SYS>>\n\n"), "user": ("[INST] ", " [/INST]"), "assistant": ("", " </s><s>")},
            style=ChatTemplateStyle.LLAMA2,
        ),
        ChatTemplate(
            "llama-3-instruct",
            None,
            {role: _llama_3(role) for role in ("system", "user", "assistant")},
            ("<|eot_id|>",),
        ),
        ChatTemplate(
            "vicuna_v1.1",
            None,
            {"system": ("", " "), "user": ("USER:", " "), "assistant": ("ASSISTANT:", "</s>")},
        ),
        ChatTemplate(
            "gemma-it",
            None,
            {
                "system": ("", ""),
                "user": ("<start_of_turn>user\n", "<end_of_turn>\n"),
                "assistant": ("<start_of_turn>model\n", "<end_of_turn>\n"),
            },
        ),
    )
}


def get_chat_template(name: str) -> ChatTemplate:
    """The template of this name.

    Raises:
        ArgumentError: there is none; the message lists those there are.
    """
    if name not in _TEMPLATES:
        raise reject("chat_template", name, "a ChatTemplate, or one of " + ", ".join(map(repr, _TEMPLATES)))
    return _TEMPLATES[name]


def as_chat_template(value: Any) -> ChatTemplate | None:
    """A template from what users hold: one, its name, or None."""
    if value is None or isinstance(value, ChatTemplate):
        return value
    if isinstance(value, str):
        return get_chat_template(value)
    raise reject("chat_template", value, "a ChatTemplate, or the name of one")
