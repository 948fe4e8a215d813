"""Given JSON values, from `enum` and `const`."""

import json
from typing import Any

from sgl_runtime.grammar.choices import check_encodable
from sgl_runtime.grammar.json_schema.policy import WhitespacePolicy
from sgl_runtime.grammar.nfa import Nfa


def add_literal(nfa: Nfa, policy: WhitespacePolicy, value: Any, source: int) -> int:
    """Lay out one value; returns the state behind it."""
    if isinstance(value, dict) and value:
        at = policy.add_gap(nfa, nfa.add_text(source, "{"))
        for index, (key, item) in enumerate(value.items()):
            at = policy.add_comma(nfa, at) if index else at
            at = policy.add_colon(nfa, nfa.add_text(at, string_text(key)))
            at = add_literal(nfa, policy, item, at)
        return nfa.add_text(policy.add_gap(nfa, at), "}")
    if isinstance(value, list) and value:
        at = policy.add_gap(nfa, nfa.add_text(source, "["))
        for index, item in enumerate(value):
            at = policy.add_comma(nfa, at) if index else at
            at = add_literal(nfa, policy, item, at)
        return nfa.add_text(policy.add_gap(nfa, at), "]")
    return nfa.add_text(source, string_text(value) if isinstance(value, str) else json.dumps(value))


def string_text(text: str) -> str:
    """The JSON spelling of a string.

    Raises:
        GrammarError: the string holds a lone surrogate.
    """
    check_encodable(text, "json_schema: string")
    return json.dumps(text, ensure_ascii=False)


def type_names(value: Any) -> set[str]:
    """The names that `type` has for a value."""
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"integer", "number"} if value.is_integer() else {"number"}
    if isinstance(value, str):
        return {"string"}
    return {"array"} if isinstance(value, list) else {"object"}
