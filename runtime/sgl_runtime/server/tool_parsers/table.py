"""The formats by the names of `--tool-call-parser`, and the format that a chat template speaks of."""

from sgl_runtime.registry import Registry
from sgl_runtime.server.tool_parsers.tool_format import ToolFormat

_FOLDER = "sgl_runtime.server.tool_parsers"

TOOL_PARSERS = Registry(
    "tool call parser",
    {
        "deepseekv3": f"{_FOLDER}.deepseek:DEEPSEEK",
        "deepseekv31": f"{_FOLDER}.deepseek:DEEPSEEK",
        "glm45": f"{_FOLDER}.glm:GLM",
        "gpt-oss": f"{_FOLDER}.harmony:HARMONY",
        "hermes": f"{_FOLDER}.hermes:HERMES",
        "kimi_k2": f"{_FOLDER}.kimi:KIMI",
        "llama3": f"{_FOLDER}.llama3:LLAMA3",
        "mistral": f"{_FOLDER}.mistral:MISTRAL",
        "pythonic": f"{_FOLDER}.pythonic:PYTHONIC",
        "qwen": f"{_FOLDER}.hermes:HERMES",
        "qwen25": f"{_FOLDER}.hermes:HERMES",
        "qwen3_coder": f"{_FOLDER}.qwen3_coder:QWEN3_CODER",
    },
)

# Those with the most telling signs first: Qwen3-Coder and GLM have the marks of Hermes too.
_DETECTED = ("qwen3_coder", "glm45", "hermes", "mistral", "deepseekv3", "kimi_k2", "gpt-oss", "pythonic", "llama3")


def tool_format(name: str) -> ToolFormat:
    """The format of that name.

    Raises:
        ConfigError: there is none.
    """
    found: ToolFormat = TOOL_PARSERS.load(name)
    return found


def detected_parser(template: str) -> str | None:
    """The name of the format whose marks a chat template shows; None where it shows none."""
    for name in _DETECTED:
        if any(sign in template for sign in tool_format(name).template_signs):
            return name
    return None
