"""Lenient reading of a schema: keywords that cannot be enforced are taken out, and named.

What is left allows everything that the whole schema allows.  So where a keyword stands under a negation (`not`, `if`,
the other options of a `oneOf`, `contains` with `maxContains`), it is the negation that goes.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from sgl_runtime.grammar.base import RelaxedKeyword

# What stands under these are values, not schemas.
_DATA = frozenset({"enum", "const", "default", "examples", "example"})
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

# What stands under these are objects of schemas, whose keys are names and no keywords.
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
_HOLDING_SCHEMAS = _MAPS | {
    "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "items", "prefixItems", "additionalItems", "contains",
    "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties",
}  # fmt: skip

Path = tuple[str, ...]
"""The keys from the root; indices of lists as text."""


class LenientSchema:
    """A schema from which keywords are taken out, one after the other.

    Args:
        schema: The schema as given; it is not changed.

    Attributes:
        value: What is left of it.
        relaxed: What was taken out so far.
    """

    def __init__(self, schema: Any) -> None:
        self.value: Any = copy.deepcopy(schema)
        self.relaxed: list[RelaxedKeyword] = []
        # Options of a `oneOf` that has become an `anyOf` keep the place that the caller knows.
        self._moved: dict[str, str] = {}

    def take_out(self, pointer: str, reason: str) -> None:
        """Take out the keyword at a place, or the negations above it; the schema has to be read anew then."""
        path = _path(pointer)
        negations = [place for place in self._negations() if self._reaches(place, path)]
        if not negations:
            parent = self._at(path[:-1])
            del parent[path[-1]]
            self._note(path, reason)
            return
        # From the inside outwards, since an outer one may take inner ones with it.
        for place in sorted(negations, key=len, reverse=True):
            self._drop_negation(place, f"holds {self._shown(path)}, which {reason}")

    def _note(self, path: Path, reason: str) -> None:
        self.relaxed.append(RelaxedKeyword(self._shown(path), reason))

    def _shown(self, path: Path) -> str:
        pointer = _pointer(path)
        for now, before in self._moved.items():
            if pointer == now or pointer.startswith(now + "/"):
                return before + pointer[len(now) :]
        return pointer

    def _drop_negation(self, place: Path, reason: str) -> None:
        parent, keyword = self._at(place[:-1]), place[-1]
        if keyword not in parent:
            return
        self._note(place, reason)
        options = parent.pop(keyword)
        if keyword == "if":
            parent.pop("then", None)
            parent.pop("else", None)
        if keyword != "oneOf":
            return
        if "anyOf" not in parent:
            parent["anyOf"] = options
            moved = (*place[:-1], "anyOf")
        else:
            parent.setdefault("allOf", []).append({"anyOf": options})
            moved = (*place[:-1], "allOf", str(len(parent["allOf"]) - 1), "anyOf")
        self._moved = {_pointer(moved): self._shown(place), **self._moved}

    def _negations(self) -> Iterator[Path]:
        """The places of keywords under which less allowed means more allowed outside."""
        for path, node in _schemas(self.value, ()):
            for keyword in ("not", "if", "oneOf"):
                if keyword in node:
                    yield (*path, keyword)
            if "contains" in node and "maxContains" in node:
                yield (*path, "maxContains")

    def _reaches(self, negation: Path, path: Path) -> bool:
        """Whether a place lies under a negation, references followed."""
        start = (*negation[:-1], "contains") if negation[-1] == "maxContains" else negation
        pending, seen = [start], {start}
        while pending:
            top = pending.pop()
            if path[: len(top)] == top:
                return True
            for _, node in _schemas(self._at(top), top):
                for keyword in _REFERENCES:
                    if keyword not in node:
                        continue
                    target = self._target(keyword, node[keyword])
                    if target is None:
                        # It may lead anywhere.
                        return True
                    if target not in seen:
                        seen.add(target)
                        pending.append(target)
        return False

    def _target(self, keyword: str, reference: Any) -> Path | None:
        """The place that a reference names, None where that is not plain to see."""
        is_plain = keyword == "$ref" and isinstance(reference, str) and (reference == "#" or reference[:2] == "#/")
        if not is_plain:
            return None
        return _path(unquote(reference))

    def _at(self, path: Path) -> Any:
        """What stands at a place, None where nothing does."""
        value = self.value
        for key in path:
            if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            elif isinstance(value, dict):
                value = value.get(key)
            else:
                return None
        return value


def _schemas(value: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every object that may be a schema, with its place."""
    pending: list[tuple[Path, Any]] = [(path, value)]
    while pending:
        at, each = pending.pop()
        if isinstance(each, list):
            pending += [((*at, str(index)), inner) for index, inner in enumerate(each)]
        elif isinstance(each, dict):
            yield at, each
            for key, inner in each.items():
                if key in _MAPS and isinstance(inner, dict):
                    pending += [((*at, key, name), named) for name, named in inner.items()]
                elif key not in _DATA:
                    pending.append(((*at, key), inner))


def _path(pointer: str) -> Path:
    """The keys of a JSON pointer that begins with `#`."""
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:])


def _pointer(path: Path) -> str:
    return "#" + "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in path)


def schema_places(schema: Any) -> list[tuple[str, dict[str, Any]]]:
    """Every object under the keywords of a schema that is a schema itself, with its JSON pointer."""
    found = []
    pending: list[tuple[Path, Any]] = [((), schema)]
    while pending:
        path, node = pending.pop()
        if not isinstance(node, dict):
            continue
        found.append((_pointer(path), node))
        for key in filter(_HOLDING_SCHEMAS.__contains__, node):
            inner = node[key]
            if isinstance(inner, list):
                pending += [((*path, key, str(index)), each) for index, each in enumerate(inner)]
            elif key in _MAPS and isinstance(inner, dict):
                pending += [((*path, key, name), each) for name, each in inner.items()]
            else:
                pending.append(((*path, key), inner))
    return found


def places_of(schema: Any, keywords: Sequence[str]) -> list[str]:
    """The JSON pointers of all places where some keywords stand in a schema."""
    found = [_pointer((*path, name)) for path, node in _schemas(schema, ()) for name in keywords if name in node]
    return sorted(found)
