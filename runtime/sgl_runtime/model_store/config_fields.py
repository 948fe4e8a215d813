"""Fields of a model's JSON files, checked as they are read."""

import json
from pathlib import Path
from typing import Any

from sgl_runtime.errors import ModelLoadError


class ConfigFields:
    """The numbers of a config, checked as they are read.

    Args:
        data: The parsed config.json.
        source: Where it came from, for messages.
    """

    def __init__(self, data: dict[str, Any], source: str) -> None:
        self._data = data
        self._source = source

    def optional(self, name: str) -> int | None:
        """A whole number above 0, or None where there is none."""
        value = self._data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelLoadError(f"{self._source}: {name} is {value!r}; it must be a whole number above 0")
        return value

    def required(self, name: str) -> int:
        """A whole number above 0."""
        value = self.optional(name)
        if value is None:
            raise ModelLoadError(f"{self._source} has no {name!r}")
        return value

    def number(self, name: str, default: float) -> float:
        """A number above 0, or the default where there is none."""
        return self.checked_number(name, self._data.get(name), default)

    def checked_number(self, name: str, value: Any, default: float) -> float:
        """`value` if it is a number above 0, the default if it is None."""
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ModelLoadError(f"{self._source}: {name} is {value!r}; it must be a number above 0")
        return float(value)


def first_architecture(data: dict[str, Any]) -> str:
    """Class name of a model, as its config gives it."""
    return str((as_list(data.get("architectures")) or [data.get("model_type")])[0])


def token_ids(data: dict[str, Any], name: str, source: str) -> list[int]:
    """The ids of a field that holds one, several or none.

    Raises:
        ModelLoadError: it holds something else.
    """
    ids = as_list(data.get(name))
    for value in ids:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ModelLoadError(f"{source}: {name} is {data[name]!r}; it must be a token id or a list of them")
    return ids


def as_list(value: Any) -> list[Any]:
    """A list as it is, nothing for None, anything else as the one item."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object of a file.

    Raises:
        ModelLoadError: it cannot be read, or holds none.
    """
    data = _parsed(path)
    if not isinstance(data, dict):
        raise ModelLoadError(f"{path} holds no JSON object")
    return data


def read_json_objects(path: Path) -> list[dict[str, Any]]:
    """The JSON objects that a file lists.

    Raises:
        ModelLoadError: it cannot be read, or holds something else.
    """
    data = _parsed(path)
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise ModelLoadError(f"{path} holds no list of JSON objects")
    return data


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} cannot be read as JSON: {error}") from error
