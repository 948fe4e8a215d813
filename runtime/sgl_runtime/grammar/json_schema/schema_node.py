"""SchemaNode: a subschema with its place, so that every refusal can say where."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sgl_runtime.errors import GrammarError


class UnsupportedKeywordError(GrammarError):
    """A keyword means something that cannot be enforced.

    Args:
        pointer: The keyword's JSON pointer.
        reason: Why, as the rest of a sentence about it.
    """

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(f"json_schema: {pointer} {reason}")
        self.pointer = pointer
        self.reason = reason


@dataclass(eq=False, slots=True)
class SchemaNode:
    """A subschema.

    Attributes:
        value: The JSON value that stands there, commonly an object.
        pointer: Its JSON pointer from the root, `#/properties/a`.
    """

    value: Any
    pointer: str

    def child(self, *keys: str | int) -> "SchemaNode":
        """What stands below, by object keys and array indices."""
        value, pointer = self.value, self.pointer
        for key in keys:
            value = value[key]
            pointer = f"{pointer}/{_escaped(str(key))}"
        return SchemaNode(value, pointer)

    def error(self, keyword: str, complaint: str) -> GrammarError:
        """The error for one keyword of this subschema."""
        return GrammarError(f"json_schema: {self.child_pointer(keyword)} {complaint}")

    def unsupported(self, keyword: str, reason: str) -> UnsupportedKeywordError:
        """The error for a keyword of this subschema that cannot be enforced."""
        return UnsupportedKeywordError(self.child_pointer(keyword), reason)

    def child_pointer(self, keyword: str) -> str:
        """The JSON pointer of a keyword."""
        return f"{self.pointer}/{_escaped(keyword)}"

    def integer(self, keyword: str) -> int | None:
        """The value of a keyword that counts something, None if it is absent.

        Raises:
            GrammarError: it is no non-negative integer.
        """
        value = self.value.get(keyword)
        if value is None and keyword not in self.value:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.error(keyword, f"is {value!r}; it must be a non-negative integer")
        return value

    def strings(self, keyword: str) -> Sequence[str]:
        """The value of a keyword that lists strings, empty if it is absent.

        Raises:
            GrammarError: it is no list of strings.
        """
        value = self.value.get(keyword, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(keyword, f"is {value!r}; it must be a list of strings")
        return value

    def named(self, keyword: str) -> dict[str, "SchemaNode"]:
        """The subschemas in the object of a keyword by their names, none if it is absent.

        Raises:
            GrammarError: it is no object.
        """
        value = self.value.get(keyword)
        if value is None and keyword not in self.value:
            return {}
        if not isinstance(value, dict):
            raise self.error(keyword, f"is {value!r}; it must be an object")
        pointer = self.child_pointer(keyword)
        return {name: SchemaNode(each, f"{pointer}/{_escaped(name)}") for name, each in value.items()}

    def schemas(self, keyword: str) -> list["SchemaNode"]:
        """The subschemas in the list of a keyword.

        Raises:
            GrammarError: it is no list.
        """
        value = self.value[keyword]
        if not isinstance(value, list):
            raise self.error(keyword, "must be a list of schemas")
        return [self.child(keyword, index) for index in range(len(value))]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key
