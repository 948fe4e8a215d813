"""References: what `$ref` and its kin name, and which properties the schemas at one place speak of."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from sgl_runtime.grammar.budget import Budget
from sgl_runtime.grammar.json_schema.schema_node import SchemaNode

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("if", "then", "else")
_BY_PROPERTY = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Up to draft 7, what stands beside `$ref` has no meaning.
_REF_STANDS_ALONE = ("draft-03", "draft-04", "draft-05", "draft-06", "draft-07")
# Where schemas stand in a schema: by name, in a list or alone.
_SCHEMAS_BY_NAME = (
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies",
)  # fmt: skip
_SCHEMAS = (
    "allOf", "anyOf", "oneOf", "prefixItems", "items", "additionalItems", "additionalProperties", "not", "if", "then",
    "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip


_NAMES_OF_PLACES = ("$id", "id", "$anchor", "$dynamicAnchor")

_NAMING: tuple[tuple[str, type], ...] = (
    ("properties", dict), ("required", list),
    ("dependentRequired", dict), ("dependentSchemas", dict), ("dependencies", dict),
)  # fmt: skip


class References:
    """Resolves references inside one schema.

    Args:
        root: The whole schema.
        budget: Limits the work.

    Attributes:
        ref_stands_alone: Whether keywords beside `$ref` have no meaning, as in the drafts up to 7.
    """

    def __init__(self, root: Any, budget: Budget) -> None:
        self._budget = budget
        self._root = SchemaNode(root, "#")
        draft = root.get("$schema") if isinstance(root, dict) else None
        self.ref_stands_alone = isinstance(draft, str) and any(name in draft for name in _REF_STANDS_ALONE)
        self._names: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        self._places: dict[str, SchemaNode] | None = None
        self._may_have_ids: bool | None = None
        self._bases: dict[str, str] = {}

    def resolve(self, node: SchemaNode, keyword: str) -> SchemaNode:
        """The subschema that a reference names.

        Raises:
            GrammarError: the reference leaves the schema, leads nowhere, or is one whose target depends on the caller.
        """
        reference = node.value[keyword]
        if not isinstance(reference, str):
            raise node.error(keyword, f"is {reference!r}; it must be a string")
        if reference == "#" or (reference.startswith("#/") and not self._has_ids()):
            return self._below(self._root, reference, node, keyword)
        places = self._named_places()
        address, fragment = urldefrag(urljoin(self._base_of(node), reference))
        if keyword != "$ref" and not (keyword == "$recursiveRef" or len(self._dynamic_anchors(fragment)) == 1):
            raise node.unsupported(
                keyword, f"is {reference!r}, whose meaning depends on where it is used: not supported"
            )
        if not fragment.startswith("/") and fragment and f"{address}#{fragment}" in places:
            return places[f"{address}#{fragment}"]
        if address in places:
            return self._below(places[address], f"#{fragment}", node, keyword)
        raise node.unsupported(keyword, f"is {reference!r}; only references inside the schema are supported")

    def names_at(self, node: SchemaNode, *, without: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The properties that the schemas which hold at the place of a subschema speak of, in their order.

        Args:
            node: The subschema.
            without: Pointers of schemas that are left out.
        """
        known = self._names.get((node.pointer, without))
        if known is None:
            names: dict[str, None] = {}
            for each in self._in_place(node, set(without)):
                for keyword, container in _NAMING:
                    named = each.value.get(keyword)
                    if isinstance(named, container) and isinstance(named, dict | list):
                        names.update((name, None) for name in named if isinstance(name, str))
            known = self._names[node.pointer, without] = tuple(names)
        return known

    def _in_place(self, node: SchemaNode, seen: set[str]) -> Iterator[SchemaNode]:
        """A subschema and all that apply to the same value, but those seen."""
        for each in self.walk(node, self._next_in_place, seen):
            if not ("$ref" in each.value and self.ref_stands_alone):
                yield each

    def walk(
        self, node: SchemaNode, next_of: Callable[[SchemaNode], Iterator[SchemaNode]], seen: set[str]
    ) -> Iterator[SchemaNode]:
        """A subschema and all that are reached from it, each before those behind it.

        Args:
            node: The subschema.
            next_of: What is reached from one at once.
            seen: Pointers of what is passed over; gets those of all that are reached.

        Raises:
            BudgetError: this takes too long.
        """
        # No recursion: chains of references may be as long as the schema.
        pending = [iter((node,))]
        while pending:
            each = next(pending[-1], None)
            if each is None:
                pending.pop()
            elif isinstance(each.value, dict) and each.pointer not in seen:
                self._budget.spend()
                seen.add(each.pointer)
                yield each
                pending.append(next_of(each))

    def _next_in_place(self, node: SchemaNode) -> Iterator[SchemaNode]:
        if "$ref" in node.value and self.ref_stands_alone:
            yield self.resolve(node, "$ref")
            return
        yield from self.referred(node)
        yield from self.in_place_below(node)

    def referred(self, node: SchemaNode) -> Iterator[SchemaNode]:
        """What the references of a schema name."""
        for keyword in _REFERENCES:
            if keyword in node.value:
                yield self.resolve(node, keyword)

    def in_place_below(self, node: SchemaNode) -> Iterator[SchemaNode]:
        """The subschemas of a schema that apply to the same value."""
        for keyword in _IN_PLACE_LISTS:
            if isinstance(node.value.get(keyword), list):
                yield from node.schemas(keyword)
        for keyword in _IN_PLACE:
            if keyword in node.value:
                yield node.child(keyword)
        for keyword in _BY_PROPERTY:
            by_property = node.value.get(keyword)
            for name, value in by_property.items() if isinstance(by_property, dict) else ():
                if isinstance(value, dict):
                    yield node.child(keyword, name)

    def _below(self, start: SchemaNode, reference: str, node: SchemaNode, keyword: str) -> SchemaNode:
        target = start
        for part in reference.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(target.value, dict) and key in target.value:
                target = target.child(key)
            elif isinstance(target.value, list) and key.isdecimal() and int(key) < len(target.value):
                target = target.child(int(key))
            else:
                raise node.error(keyword, f"is {node.value[keyword]!r}, which names nothing in the schema")
        return target

    def _has_ids(self) -> bool:
        if self._may_have_ids is None:
            self._may_have_ids = _names_a_place(self._root.value)
        return self._may_have_ids and len(self._named_places()) > 1

    def _base_of(self, node: SchemaNode) -> str:
        """The address against which a reference is read: that of the closest `$id` around it."""
        pointer = node.pointer
        while pointer not in self._bases:
            pointer = pointer.rpartition("/")[0]
        return self._bases[pointer]

    def _dynamic_anchors(self, name: str) -> list[str]:
        return [address for address in self._named_places() if address.endswith(f"#{name}")] if name else [""]

    def _named_places(self) -> dict[str, SchemaNode]:
        """Subschemas by the addresses that `$id` and the anchors give them; the root is at its own."""
        if self._places is None:
            self._places = {}
            pending = [(self._root, "")]
            while pending:
                node, base = pending.pop()
                if isinstance(node.value, dict):
                    base = self._name(node, base)
                    for keyword in _SCHEMAS_BY_NAME:
                        by_name = node.value.get(keyword)
                        names = by_name if isinstance(by_name, dict) else ()
                        pending += [(node.child(keyword, name), base) for name in names]
                    pending += [(node.child(keyword), base) for keyword in _SCHEMAS if keyword in node.value]
                elif isinstance(node.value, list):
                    pending += [(node.child(index), base) for index in range(len(node.value))]
        return self._places

    def _name(self, node: SchemaNode, base: str) -> str:
        assert self._places is not None
        is_root = node.pointer == "#"
        for keyword in ("$id", "id"):
            own = node.value.get(keyword)
            if isinstance(own, str) and (not own.startswith("#") or keyword == "$id"):
                address, fragment = urldefrag(urljoin(base, own))
                if fragment:
                    self._places[f"{address}#{fragment}"] = node
                else:
                    base = address
                    is_root = True
        if is_root:
            self._places.setdefault(base, node)
            self._bases[node.pointer] = base
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.value.get(keyword), str):
                self._places[f"{base}#{node.value[keyword]}"] = node
        return base


def _names_a_place(root: Any) -> bool:
    """Whether some place below the root, or an anchor at the root, may have a name: a quick look at all values."""
    pending = list(root.values()) if isinstance(root, dict) else []
    if isinstance(root, dict) and any(isinstance(root.get(keyword), str) for keyword in _NAMES_OF_PLACES[2:]):
        return True
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if not value.keys().isdisjoint(_NAMES_OF_PLACES) and any(
                isinstance(value.get(keyword), str) for keyword in _NAMES_OF_PLACES
            ):
                return True
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return False
