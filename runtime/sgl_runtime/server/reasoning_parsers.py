"""How models that think before they answer mark their thinking, by the names of `--reasoning-parser`."""

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
