"""Registry: an immutable table from a name to the import path of what implements it."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from sgl_runtime.errors import ConfigError


class Registry:
    """Names to `module:attribute` paths, loaded on first use.

    Args:
        kind: What the entries are, for error messages ("attention backend").
        entries: Name to import path.
    """

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self._entries = MappingProxyType(dict(entries))

    def names(self) -> list[str]:
        """Every registered name, sorted."""
        return sorted(self._entries)

    def load(self, name: str) -> Any:
        """The object registered under `name`.

        Raises:
            ConfigError: no such name; the message lists the known ones.
        """
        if name not in self._entries:
            raise ConfigError(f"unknown {self.kind} {name!r}; known: {', '.join(self.names())}")
        module, _, attribute = self._entries[name].partition(":")
        return getattr(import_module(module), attribute)
