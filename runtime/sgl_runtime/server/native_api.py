"""NativeApi: every path of docs/protocol.md, for the HTTP routes and for `Engine` alike."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.server.control_paths import ControlPaths
from sgl_runtime.server.generate_request import parse_generate
from sgl_runtime.server.generation_paths import GenerationPaths
from sgl_runtime.server.info_paths import InfoPaths
from sgl_runtime.server.native_path import NativePath, PathGroup
from sgl_runtime.server.tokenizer_manager import TokenizerManager


class NativeApi:
    """Answers payloads with JSON-shaped replies; what is wrong raises an `SglRuntimeError`.

    Args:
        manager: Runs the requests.
        settings: The effective configuration, for `/get_server_info`.

    Attributes:
        paths: Every path that answers once, and how.
    """

    def __init__(self, manager: TokenizerManager, settings: dict[str, Any]) -> None:
        self.manager = manager
        groups: list[PathGroup] = [GenerationPaths(manager), ControlPaths(manager), InfoPaths(manager, settings)]
        self.paths: Mapping[str, NativePath] = MappingProxyType(
            {path: found for group in groups for path, found in group.paths().items()}
        )

    async def call(self, path: str, payload: Any = None) -> Any:
        """The reply of a path.

        Args:
            path: As in docs/protocol.md.
            payload: The JSON body as Python objects; None where the path takes none.

        Raises:
            SglRuntimeError: the payload is wrong, or the request failed.
        """
        if path not in self.paths:
            raise InvalidRequestError(f"{path!r} is no path; known: {', '.join(self.paths)}")
        return await self.paths[path].answer(payload)

    async def stream(self, path: str, payload: Any) -> AsyncGenerator[dict[str, Any], None]:
        """The replies of `/generate` as they grow; the last of each prompt has a finish reason.

        Raises:
            SglRuntimeError: the payload is wrong, or a request failed.
        """
        if path != "/generate":
            raise InvalidRequestError(f"{path!r} does not stream; only '/generate' does")
        body = parse_generate(payload)
        async with (
            self.manager.submit(body.requests, stream=True) as submission,
            aclosing(submission.updates()) as updates,
        ):
            async for pending in updates:
                yield pending.reply()
