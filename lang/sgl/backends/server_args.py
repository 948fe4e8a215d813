"""ServerArgs: the options of an engine or a server by name, checked before anything starts."""

from importlib import import_module
from typing import Any

from sgl.backends.engine import RUNTIME_PACKAGE
from sgl.errors import ArgumentError, SglError


class ServerArgs(dict[str, Any]):
    """Options by the names of the command line's flags, with underscores; a dict of those given.

        args = sgl.ServerArgs(model_path="smollm2", max_total_tokens=4096)
        engine = sgl.Engine(**args)  # or sgl.Runtime(**args)

    Args:
        model_path: As in `Engine`.
        **options: The others.

    Raises:
        ArgumentError: an option is unknown (the nearest is named), or a value is wrong.
        SglError: the runtime's dependencies are not installed.
    """

    def __init__(self, model_path: str, **options: Any) -> None:
        super().__init__(model_path=model_path, **options)
        try:
            build_config = import_module(f"{RUNTIME_PACKAGE}.config_flags").build_config
            config_error = import_module(f"{RUNTIME_PACKAGE}.errors").ConfigError
        except ModuleNotFoundError as error:
            raise SglError(
                f"sgl.ServerArgs needs {error.name}, which is not installed; install the runtime: "
                "pip install 'sgl[runtime]'"
            ) from error
        try:
            build_config(self)
        except config_error as error:
            raise ArgumentError(str(error)) from error
