"""What `unevaluatedProperties` and `unevaluatedItems` look at: what the schemas at one place evaluate in any case.

Schemas that hold in any case are the one with the keyword, what it refers to and what stands under `allOf`.  What is
evaluated only where a branch holds (`anyOf`, `if`, ...) is refused, unless it is evaluated in any case too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sgl_runtime.grammar.json_schema.references import References
from sgl_runtime.grammar.json_schema.schema_node import SchemaNode

_ALL_PROPERTIES = ("additionalProperties", "unevaluatedProperties")


@dataclass(slots=True)
class Evaluated:
    """What some schemas evaluate.

    Attributes:
        names: Properties, in order.
        patterns: Patterns of properties.
        all_properties, all_items: Whether all are.
        num_items: So many first items.
    """

    names: dict[str, None] = field(default_factory=dict)
    patterns: dict[str, None] = field(default_factory=dict)
    all_properties: bool = False
    all_items: bool = False
    num_items: int = 0

    def add(self, node: SchemaNode, *, without: str | None = None) -> None:
        """Add what the keywords of one schema evaluate themselves.

        Args:
            node: The schema.
            without: A keyword that is passed over.
        """
        schema = node.value
        for keyword, known in (("properties", self.names), ("patternProperties", self.patterns)):
            value = schema.get(keyword)
            known.update(dict.fromkeys(value if isinstance(value, dict) else ()))
        self.all_properties |= any(keyword in schema for keyword in _ALL_PROPERTIES if keyword != without)
        is_old = isinstance(schema.get("items"), list)
        prefix, rest = ("items", "additionalItems") if is_old else ("prefixItems", "items")
        if isinstance(schema.get(prefix), list):
            self.num_items = max(self.num_items, len(schema[prefix]))
        self.all_items |= any(keyword in schema for keyword in (rest, "unevaluatedItems") if keyword != without)

    def covers(self, other: "Evaluated", keyword: str) -> bool:
        """Whether all that others evaluate, of what a keyword looks at, is evaluated here."""
        if keyword == "unevaluatedItems":
            return self.all_items or not (other.all_items or other.num_items > self.num_items)
        if self.all_properties:
            return True
        names_known = other.names.keys() <= self.names.keys() and other.patterns.keys() <= self.patterns.keys()
        return names_known and not other.all_properties


def evaluated_at(node: SchemaNode, keyword: str, references: References) -> Evaluated:
    """What is evaluated where a schema with one of the two keywords stands.

    Args:
        node: The schema.
        keyword: The keyword.
        references: Resolves references.

    Raises:
        UnsupportedKeywordError: what is evaluated depends on which branches hold.
    """

    def next_in_any_case(schema: SchemaNode) -> Iterator[SchemaNode]:
        yield from references.referred(schema)
        yield from schema.schemas("allOf") if "allOf" in schema.value else ()

    def next_in_place(schema: SchemaNode) -> Iterator[SchemaNode]:
        yield from references.referred(schema)
        yield from references.in_place_below(schema)

    found = Evaluated()
    always = list(references.walk(node, next_in_any_case, set()))
    for each in always:
        found.add(each, without=keyword if each is node else None)
    for each in always:
        if keyword == "unevaluatedItems" and "contains" in each.value and not found.all_items:
            raise node.unsupported(keyword, "is not supported beside 'contains', which evaluates the items it finds")
        for branch in references.in_place_below(each):
            if branch.pointer.startswith(f"{each.pointer}/allOf/"):
                continue
            sometimes = Evaluated()
            for inner in references.walk(branch, next_in_place, set()):
                sometimes.add(inner)
            if not found.covers(sometimes, keyword):
                word = branch.pointer[len(each.pointer) :].split("/")[1]
                raise node.unsupported(
                    keyword, f"is not supported beside {word!r}, by which it changes what is evaluated"
                )
    return found
