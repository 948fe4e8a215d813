"""EngineBackend: an engine in this process, called with the same payloads as a server.

The engine's class is loaded by name on first use, so the language can be imported without the runtime.
"""

from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

from sgl.backends.model_facts import ModelFacts
from sgl.backends.native import NativeBackend, Transport
from sgl.errors import BackendError, SglError

RUNTIME_PACKAGE = "sgl_runtime"


def load_engine_class() -> Any:
    """The runtime's `Engine`.

    Raises:
        SglError: the runtime's dependencies are not installed; the message has the command that installs them.
    """
    try:
        return import_module(f"{RUNTIME_PACKAGE}.engine").Engine
    except ModuleNotFoundError as error:
        raise SglError(
            f"sgl.Engine needs {error.name}, which is not installed; install the runtime: pip install 'sgl[runtime]'"
        ) from error


class EngineBackend(NativeBackend):
    """Runs programs on an engine.  The engine stays its owner's: closing the backend does not shut it down.

    Args:
        engine: Takes `call(path, payload)` and `stream(path, payload)`.
        facts: What is known of its model; None for nothing yet.
    """

    def __init__(self, engine: Transport, *, facts: ModelFacts | None = None) -> None:
        super().__init__(EngineTransport(engine), facts=facts)


class EngineTransport:
    """An engine whose errors are those that a server's client sees.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: Transport) -> None:
        self._engine = engine
        self._runtime_error: type[Exception] = import_module(f"{RUNTIME_PACKAGE}.errors").SglRuntimeError

    async def call(self, path: str, payload: dict[str, Any]) -> Any:
        """See `Transport`."""
        try:
            return await self._engine.call(path, payload)
        except self._runtime_error as error:
            raise translate(error) from error

    async def stream(self, path: str, payload: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """See `Transport`."""
        try:
            async for event in self._engine.stream(path, payload):
                yield event
        except self._runtime_error as error:
            raise translate(error) from error


def translate(error: Any) -> BackendError:
    """The client's form of a runtime error, which has the attributes status, code, message and param."""
    return BackendError(error.message, status=error.status, code=error.code, param=error.param)
