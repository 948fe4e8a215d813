"""The atoms about objects and arrays: what one keyword, or a group of keywords that belong together, says.

Atoms about strings and numbers are in `strings` and `numbers`.  A `Child` names the schema of a value inside.
"""

from dataclasses import dataclass

from sgl_runtime.grammar.json_schema.formula import Formula

Child = int
ANYTHING: Child = 0
NOTHING: Child = 1


@dataclass(frozen=True, slots=True)
class Properties:
    """The values of an object's properties satisfy the schemas of their names.

    Attributes:
        listed: Schemas of properties by name.
        num_ordered: So many of these come in this order; the others are names that other schemas list.
        required: Those of the former that are required, where they are in another order there; they come in either.
        patterns: Schemas of properties whose names match a regex somewhere.
        additional: Schema of properties that are neither listed nor match.
    """

    listed: tuple[tuple[str, Child], ...]
    num_ordered: int
    patterns: tuple[tuple[str, Child], ...]
    additional: Child
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HasProperty:
    """An object has a property of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class NumProperties:
    """An object has at least this many more properties."""

    least: int


@dataclass(frozen=True, slots=True)
class PropertyNames:
    """The names of all properties satisfy a formula about strings."""

    formula: Formula


@dataclass(frozen=True, slots=True)
class Items:
    """The items of an array satisfy schemas by their place.

    Attributes:
        prefix: Schemas of the next items, one each.
        rest: Schema of all further items.
    """

    prefix: tuple[Child, ...]
    rest: Child


@dataclass(frozen=True, slots=True)
class NumItems:
    """An array has at least this many more items."""

    least: int


@dataclass(frozen=True, slots=True)
class Contains:
    """At least this many more items of an array satisfy a schema."""

    child: Child
    least: int


@dataclass(frozen=True, slots=True)
class Unique:
    """The items of an array differ from each other.

    Attributes:
        seen: JSON texts of the items so far, sorted, where these are few enough to be remembered.
        num_items: How many items there are so far, where they are not remembered but cannot be more than some number.
    """

    seen: tuple[str, ...] = ()
    num_items: int = 0


ObjectAtom = Properties | HasProperty | NumProperties | PropertyNames
ArrayAtom = Items | NumItems | Contains | Unique
