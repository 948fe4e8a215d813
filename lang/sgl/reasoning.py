"""Reasoning: what stands around the thinking of models that think before they answer, and who says so.

A server publishes the marks of its model (`sgl serve --reasoning-parser`); `separate_reasoning(model_type=...)` names
them where it does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sgl.errors import ArgumentError
from sgl.stops import without_stop_beginning

SUFFIX = "_reasoning_content"


@dataclass(frozen=True)
class ReasoningMarks:
    """How a model marks its thinking.

    Attributes:
        name: Name of the parser.
        opening: Text in front of the thinking.
        closing: Text that ends it.
        answer: Text between that and the answer.
    """

    name: str
    opening: str
    closing: str
    answer: str

    def framed(self, thinking: str, answer: str) -> str:
        """The text of both, as the model would write it; without an answer so far the thinking is open."""
        return f"{self.opening}{thinking}" + (f"{self.closing}{self.answer}{answer}" if answer else "")


_TAGS = ("<think>\n", "</think>", "\n\n")
REASONING_PARSERS: dict[str, ReasoningMarks] = {
    name: ReasoningMarks(name, *marks)
    for name, marks in {
        "deepseek-r1": _TAGS,
        "deepseek-v3": _TAGS,
        "glm45": ("<think>", "</think>", "\n"),
        "gpt-oss": ("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>"),
        "granite": ("Here is my thought process:", "Here is my response:", ""),
        "kimi": ("◁think▷", "◁/think▷", ""),
        "kimi_k2": ("<think>", "</think>", ""),
        "mistral": ("[THINK]", "[/THINK]", ""),
        "qwen3": _TAGS,
        "qwen3-thinking": _TAGS,
        "step3": _TAGS,
    }.items()
}


@dataclass(frozen=True)
class Thinking:
    """That a gen thinks before it answers.

    Attributes:
        marks: Of the model; None for those that its server publishes.
        max_tokens: Limit on the thinking; None for that of the gen.
    """

    marks: ReasoningMarks | None = None
    max_tokens: int | None = None


def published_marks(model_info: Mapping[str, Any]) -> ReasoningMarks:
    """The marks in what a server says of its model.

    Raises:
        ArgumentError: there are none.
    """
    published = model_info.get("reasoning_parser")
    if published is None:
        model = model_info.get("model_path")
        raise ArgumentError(
            "separate_reasoning needs to know how the model marks its thinking, and "
            + (f"the server of {model!r} names no reasoning parser" if model else "this backend does not say")
            + f": give model_type, one of {', '.join(REASONING_PARSERS)}"
            + (", or start the server with --reasoning-parser" if model else "")
        )
    return ReasoningMarks(**published)


def thinking_variable(name: str | None) -> str | None:
    """The variable that gets the thinking of a gen."""
    return None if name is None else name + SUFFIX


def split_reply(text: str, marks: ReasoningMarks) -> tuple[str, str]:
    """Thinking and answer of a reply, or of a beginning of one, that has both in its text.

    Never shows as thinking what may become the mark behind it.
    """
    opening = marks.opening.strip()
    if not text.lstrip().startswith(opening):
        return ("", "") if opening.startswith(text.strip()) else ("", text)
    inner = text.lstrip()[len(opening) :].lstrip("\n")
    thinking, closing, answer = inner.partition(marks.closing)
    if closing:
        return thinking, answer.removeprefix(marks.answer).lstrip("\n")
    return without_stop_beginning(inner, [marks.closing]), ""
