"""The file with the requests of a batch: JSON lines in OpenAI's form, checked before anything runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sgl_runtime.errors import ConfigError

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages")
_MAX_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class BatchRequest:
    """A request.

    Attributes:
        custom_id: What its answer is told apart by.
        url: Path that it goes to.
        body: JSON.
    """

    custom_id: str
    url: str
    body: bytes


class _Line(msgspec.Struct):
    """A line of the file."""

    custom_id: str
    method: str
    url: str
    body: dict[str, Any]


def check_requests(path: Path) -> set[str]:
    """See that a file holds requests and nothing else.

    Returns:
        Their ids.

    Raises:
        ConfigError: it cannot be read, or a line is wrong; the first few of those are named.
    """
    wrong: list[str] = []
    ids: set[str] = set()
    for number, text in _lines(path):
        try:
            line = _read(text)
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
        else:
            if line.custom_id in ids:
                wrong.append(f"line {number}: custom_id {line.custom_id[:80]!r} stands on a line before")
            ids.add(line.custom_id)
        if len(wrong) > _MAX_SHOWN:
            wrong[_MAX_SHOWN:] = ["and maybe more"]
            break
    if wrong:
        raise ConfigError(f"{path} holds lines that are no requests:\n" + "\n".join(wrong))
    if not ids:
        raise ConfigError(f"{path} holds no requests")
    return ids


def read_requests(path: Path, *, skipped: set[str]) -> Iterator[BatchRequest]:
    """The requests of a checked file, read as they are taken.

    Args:
        path: The file.
        skipped: Ids of those that are not wanted.
    """
    for _, text in _lines(path):
        line = _read(text)
        if line.custom_id not in skipped:
            yield BatchRequest(custom_id=line.custom_id, url=line.url, body=msgspec.json.encode(line.body))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield number, text
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read: {error.strerror}") from error


def _read(text: bytes) -> _Line:
    """A line.

    Raises:
        ValueError: it is no request; the message says why.
    """
    try:
        line = msgspec.json.decode(text, type=_Line)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not line.custom_id:
        raise ValueError("custom_id is empty")
    if line.method != "POST":
        raise ValueError(f'method is {line.method[:80]!r}; it must be "POST"')
    if line.url not in URLS:
        raise ValueError(f"url is {line.url[:80]!r}; it must be one of {', '.join(URLS)}")
    for name in ("stream", "background"):
        if line.body.get(name):
            raise ValueError(f"body.{name} is set; each answer is one line")
    return line
