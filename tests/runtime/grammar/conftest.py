import numpy as np
import pytest

from sgl_runtime.grammar.base import GrammarVocabulary

EOS = 0


@pytest.fixture(scope="session")
def byte_level_vocabulary() -> GrammarVocabulary:
    """All bytes, a few thousand longer tokens (some cut through characters), special and repeated ones."""
    rng = np.random.default_rng(11)
    text = (
        'The {"name": "José", "age": 12, "ok": true, "list": [null, -0.5e7]} '
        "日本語 😀 café 2024-01-31 \\n \\u00e9 foo bar"
    )
    data = text.encode() * 3
    tokens: list[bytes | None] = [b"</s>", None, b""]
    tokens += [bytes([byte]) for byte in range(256)]
    for _ in range(3000):
        begin, length = int(rng.integers(0, len(data) - 8)), int(rng.integers(2, 8))
        tokens.append(data[begin : begin + length])
    return GrammarVocabulary(tuple(tokens), frozenset({EOS}), len(tokens) + 45)
