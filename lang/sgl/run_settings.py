"""RunSettings: what holds for all nodes of a run besides sampling, resolved when it begins."""

from collections.abc import Sequence
from dataclasses import dataclass

from sgl.chat_template import ChatTemplate
from sgl.choices import ChoicesMethod, token_length_normalized

IMAGE_TOKEN = "<image>"


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of one run.

    Attributes:
        choices_method: How a select picks that does not say.
        chat_template: Stands in for the served model's own; None for that.
        num_api_spec_tokens: Fewest tokens that a speculative call asks for; None where calls ask for what they need.
        shows_special_tokens: Whether special tokens are part of outputs.
        prints_text: Whether the text of the state is printed when the function has returned.
    """

    choices_method: ChoicesMethod = token_length_normalized
    chat_template: ChatTemplate | None = None
    num_api_spec_tokens: int | None = None
    shows_special_tokens: bool = False
    prints_text: bool = False

    @property
    def stops(self) -> Sequence[str]:
        """Stop strings that the chat template adds to those of gens."""
        return tuple(self.chat_template.stop_str) if self.chat_template is not None else ()

    @property
    def image_token(self) -> str:
        """What stands for an image in the text."""
        return self.chat_template.image_token if self.chat_template is not None else IMAGE_TOKEN
