"""Which strings of a schema can be spelled."""

from collections.abc import Iterable

from sgl_runtime.grammar.choices import check_encodable


def check_texts(texts: Iterable[str]) -> None:
    """Refuse strings that UTF-8 cannot express.

    Raises:
        GrammarError: one holds a lone surrogate.
    """
    for text in texts:
        check_encodable(text, "json_schema: string")
