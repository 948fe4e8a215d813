"""ChatTemplate: messages to prompt text by the served model's own Jinja template."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerFast

from sgl_runtime.errors import InvalidRequestError

Message = dict[str, Any]

_MARK = "SGLMESSAGECONTENT"


class ChatTemplate:
    """The chat template of a tokenizer.

    Args:
        tokenizer: Holds the template; rendering is transformers' `apply_chat_template`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer

    @property
    def source(self) -> str:
        """The template itself; several by name as one text."""
        template = self._tokenizer.chat_template
        return "\n".join(template.values()) if isinstance(template, dict) else str(template)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool, **kwargs: Any) -> str:
        """The prompt text of a conversation.

        Args:
            messages: Objects with `role` and `content`, in order.
            add_generation_prompt: Whether to open the assistant's turn at the end.
            kwargs: Further variables of the template.

        Raises:
            InvalidRequestError: the template refuses the messages; the message is the template's own.
        """
        try:
            text = self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=add_generation_prompt, **kwargs
            )
        # A template is a program of its own, and may fail in any way.
        except Exception as error:
            raise InvalidRequestError(f"the chat template refuses these messages: {error}", param="messages") from error
        return str(text)

    def role_affixes(self, messages: Sequence[Message], role: str) -> tuple[str, str]:
        """The text around the content of the next message.

        Args:
            messages: The conversation so far.
            role: Role of the message that follows.

        Returns:
            Prefix and suffix: rendering `messages` and one more message gives what rendering `messages` gave, then the
            prefix, the content, the suffix.  For the assistant the prefix is the generation prompt.

        Raises:
            InvalidRequestError: the template refuses the role here, or rewrites earlier messages.
        """
        before = self.render(messages, add_generation_prompt=False) if messages else ""
        after = self.render([*messages, {"role": role, "content": _MARK}], add_generation_prompt=False)
        if not after.startswith(before) or after.count(_MARK) != 1:
            raise InvalidRequestError(
                f"the chat template changes earlier messages when one of role {role!r} follows", param="messages"
            )
        prefix, suffix = after[len(before) :].split(_MARK)
        if role == "assistant" and messages:
            opened = self.render(messages, add_generation_prompt=True)
            if opened.startswith(before):
                prefix = opened[len(before) :]
        return prefix, suffix
