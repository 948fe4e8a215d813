"""The web page at `/`: files of this package, read once, and answered with headers that let it load nothing else."""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Self

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    # Asked for again each time, and mostly answered that nothing has changed: a new version is seen at once.
    "cache-control": "no-cache",
}


@dataclass(frozen=True)
class WebFile:
    """One file of the page.

    Attributes:
        content: What is in it.
        content_type: Its media type.
        etag: Names the content.
    """

    content: bytes
    content_type: str
    etag: str


class WebPage:
    """The files of the page, and their routes.

    Args:
        files: By path from the page's folder.

    Attributes:
        paths: Where they are found; no path for a server without the page.
    """

    def __init__(self, files: Mapping[str, WebFile]) -> None:
        self._files = {_path_of(name): file for name, file in files.items()}
        self.paths = tuple(self._files)

    @classmethod
    def read(cls) -> Self:
        """The page as it lies in this package."""
        return cls(dict(_read_folder(files("sgl_runtime.server") / "web", "")))

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route(path, _endpoint(file), methods=["GET"]) for path, file in self._files.items()]


def _path_of(name: str) -> str:
    return "/" if name == "index.html" else f"/web/{name}"


def _read_folder(folder: Traversable, prefix: str) -> Iterator[tuple[str, WebFile]]:
    for entry in folder.iterdir():
        suffix = PurePosixPath(entry.name).suffix
        if entry.is_dir():
            yield from _read_folder(entry, f"{prefix}{entry.name}/")
        elif suffix in _TYPES:
            content = entry.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            yield prefix + entry.name, WebFile(content, _TYPES[suffix], f'"{digest[:32]}"')


def _endpoint(file: WebFile) -> Callable[[Request], Awaitable[Response]]:
    headers = {**_HEADERS, "etag": file.etag}

    async def endpoint(request: Request) -> Response:
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.content_type)

    return endpoint
