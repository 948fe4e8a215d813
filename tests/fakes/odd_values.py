"""Values of wrong kinds, for whatever field of a body."""

from typing import Any

ODD: list[Any] = [
    True,
    -1,
    0,
    10**30,
    0.5,
    "",
    "x",
    "\ud800",
    [],
    [None],
    [[]],
    [{}],
    {},
    {"": None},
    {"type": 5},
    {"type": []},
    [{"type": {}}],
    {"type": "function", "function": {"name": []}},
    {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/nowhere"}}},
]
