"""GlobalConfig: what holds for all programs of the process, unless a run says otherwise."""

from collections.abc import Callable
from typing import Any

from sgl.backends.base import Backend
from sgl.choices import ChoicesMethod, token_length_normalized
from sgl.default_backend import default_backend_or_none, set_default_backend
from sgl.errors import ArgumentError, reject


class GlobalConfig:
    """Settings of the process; read when a run begins.

    Attributes:
        verbosity: 2 prints the text of every state when its run is over (a run then waits for that); 0 prints nothing.
        skip_special_tokens_in_output: Whether special tokens are left out of outputs; False shows them.
        spaces_between_special_tokens_in_out: Kept for programs that set it.  Text is the bytes of its tokens here, and
            nothing is ever put between them.
        enable_precache_with_tracing: Whether the first item of a batch puts the prompt that it shares with the others
            into the prefix cache before their calls.  No body is traced or run for it.
        enable_parallel_encoding: Kept for programs that set it.  Joined branches go on as text and tokens; there is no
            server that concatenates keys and values.
        choices_method: How `select` picks where neither it nor the run says.
    """

    verbosity: int
    skip_special_tokens_in_output: bool
    spaces_between_special_tokens_in_out: bool
    enable_precache_with_tracing: bool
    enable_parallel_encoding: bool
    choices_method: ChoicesMethod

    def __init__(self) -> None:
        self.verbosity = 0
        self.skip_special_tokens_in_output = True
        self.spaces_between_special_tokens_in_out = True
        self.enable_precache_with_tracing = True
        self.enable_parallel_encoding = True
        self.choices_method = token_length_normalized

    @property
    def default_backend(self) -> Backend | None:
        """The backend of runs that name none; setting it is `set_default_backend`."""
        return default_backend_or_none()

    @default_backend.setter
    def default_backend(self, backend: Any) -> None:
        set_default_backend(backend)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "default_backend":
            if name not in _CHECKS:
                raise ArgumentError(f"global_config has no {name!r}; it has default_backend, {', '.join(_CHECKS)}")
            is_right, allowed = _CHECKS[name]
            if not is_right(value):
                raise reject(f"global_config.{name}", value, allowed)
        super().__setattr__(name, value)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


_BOOLEAN: tuple[Callable[[Any], bool], str] = (_is_boolean, "True or False")
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "verbosity": (lambda value: not isinstance(value, bool) and value in (0, 1, 2), "0, 1 or 2"),
    "skip_special_tokens_in_output": _BOOLEAN,
    "spaces_between_special_tokens_in_out": _BOOLEAN,
    "enable_precache_with_tracing": _BOOLEAN,
    "enable_parallel_encoding": _BOOLEAN,
    "choices_method": (callable, "a choices method such as sgl.exact_sequence_probability"),
}

# The one object of its kind, under the name that programs know; see `default_backend` for what else a process keeps.
global_config = GlobalConfig()
