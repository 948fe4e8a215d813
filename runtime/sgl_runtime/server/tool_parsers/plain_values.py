"""Arguments that a model writes as plain text: the function's schema says what they stand for."""

import json
from typing import Any


def parameters_of(schema: Any) -> dict[str, Any]:
    """The schema of each parameter of a function."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def plain_value(text: str, schema: Any) -> str:
    """JSON text of a value; a string where the schema says so, or where the text is no JSON."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "string":
        return json.dumps(text, ensure_ascii=False)
    try:
        json.loads(text, parse_int=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        lowered = text.strip().lower()
        return lowered if lowered in ("true", "false", "null") else json.dumps(text, ensure_ascii=False)
    return text.strip()


def _refuse(word: str) -> None:
    raise ValueError(word)
