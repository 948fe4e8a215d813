"""NativeApi: every path of docs/protocol.md, for the HTTP routes and for `Engine` alike."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any

from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.server.control_paths import ControlPaths
from sgl_runtime.server.embedding_paths import EmbeddingPaths
from sgl_runtime.server.generate_request import parse_generate
from sgl_runtime.server.generation_paths import GenerationPaths
from sgl_runtime.server.grammar_checker import GrammarChecker
from sgl_runtime.server.health_paths import HealthPaths
from sgl_runtime.server.info_paths import InfoPaths
from sgl_runtime.server.native_path import NativePath, PathGroup
from sgl_runtime.server.operation_paths import OperationPaths
from sgl_runtime.server.page_paths import PagePaths
from sgl_runtime.server.parser_paths import ParserPaths
from sgl_runtime.server.request_books import RequestBooks
from sgl_runtime.server.scoring_paths import ScoringPaths
from sgl_runtime.server.token_paths import TokenPaths
from sgl_runtime.server.tokenizer_manager import TokenizerManager


class NativeApi:
    """Answers payloads with JSON-shaped replies; what is wrong raises an `SglRuntimeError`.

    Args:
        manager: Runs the requests.
        settings: The effective configuration, for `/get_server_info`.
        books: What is written down of requests, for `/configure_logging`.
        grammar: How constraints are enforced, for `/validate_grammar`; the defaults where it is left out.

    Attributes:
        paths: Every path that answers once, and how.
    """

    def __init__(
        self,
        manager: TokenizerManager,
        settings: dict[str, Any],
        books: RequestBooks | None = None,
        *,
        grammar: GrammarConfig | None = None,
    ) -> None:
        self.manager = manager
        self._checker = GrammarChecker(grammar or GrammarConfig())
        groups: list[PathGroup] = [
            GenerationPaths(manager),
            TokenPaths(manager),
            EmbeddingPaths(manager),
            ScoringPaths(manager),
            ControlPaths(manager),
            InfoPaths(manager, settings),
            HealthPaths(manager),
            OperationPaths(manager, books),
            ParserPaths(manager.model_info),
            PagePaths(manager, books, self._checker),
        ]
        self.paths: Mapping[str, NativePath] = MappingProxyType(
            {path: found for group in groups for path, found in group.paths().items()}
        )

    async def close(self) -> None:
        """End what the paths have started."""
        await self._checker.close()

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
        body = parse_generate(payload, most=self.manager.max_live)
        async with (
            self.manager.submit(body.requests, stream=True) as submission,
            aclosing(submission.updates()) as updates,
        ):
            async for pending in updates:
                yield pending.reply()
