"""Spelling of given strings."""

import json

from sgl_runtime.grammar.choices import check_encodable


def string_text(text: str) -> str:
    """The JSON spelling of a string.

    Raises:
        GrammarError: the string holds a lone surrogate.
    """
    check_encodable(text, "json_schema: string")
    return json.dumps(text, ensure_ascii=False)
