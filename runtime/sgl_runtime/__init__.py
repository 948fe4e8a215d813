"""The engine and server of structured generation programs.

Names are loaded on first use, so that a process that needs one of them does not load the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgl_runtime.config import RuntimeConfig
    from sgl_runtime.engine import Engine
    from sgl_runtime.errors import SglRuntimeError
    from sgl_runtime.sampling_params import SamplingParams

__all__ = ["Engine", "RuntimeConfig", "SamplingParams", "SglRuntimeError"]

_HOMES = {
    "Engine": "sgl_runtime.engine",
    "RuntimeConfig": "sgl_runtime.config",
    "SamplingParams": "sgl_runtime.sampling_params",
    "SglRuntimeError": "sgl_runtime.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sgl_runtime' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
