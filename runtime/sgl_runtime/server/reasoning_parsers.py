"""How models that think before they answer mark their thinking, by the names of `--reasoning-parser`."""

from dataclasses import dataclass
from types import MappingProxyType

from sgl_runtime.model_info import ReasoningMarks

_TAGS = ("<think>\n", "</think>", "\n\n")
_MARKS: dict[str, tuple[str, str, str]] = {
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
}

REASONING_PARSERS = MappingProxyType(
    {
        name: ReasoningMarks(name=name, opening=opening, closing=closing, answer=answer)
        for name, (opening, closing, answer) in _MARKS.items()
    }
)

# These think from their first token on, whether a mark opens the thinking or not.
_BEGIN_INSIDE = frozenset({"deepseek-r1", "qwen3-thinking", "step3"})
# These think only where the conversation asks for it.
_THINK_WHEN_ASKED = frozenset({"deepseek-v3", "granite", "mistral"})


@dataclass(frozen=True)
class ReasoningStyle:
    """How the thinking of a model is told apart.

    Attributes:
        marks: What stands around it.
        begins_inside: Whether the model thinks from its first token on, though no mark opens it.
        thinks_unasked: Whether it thinks unless the prompt has closed the thinking.
    """

    marks: ReasoningMarks
    begins_inside: bool
    thinks_unasked: bool


def reasoning_style(marks: ReasoningMarks) -> ReasoningStyle:
    """The style that goes with published marks."""
    return ReasoningStyle(marks, marks.name in _BEGIN_INSIDE, marks.name not in _THINK_WHEN_ASKED)
