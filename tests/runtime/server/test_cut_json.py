"""Objects whose text was cut, against the object that the text was cut from."""

import json
from typing import Any

import pytest

from sgl_runtime.server.cut_json import read_cut_object

WHOLE = {"a": 1, "b": ["x", {"c": 'q"\\}', "d": None}, [], -2.5e3], "e": {"f": {}, "g": True}, "ü": "é]"}


def is_beginning(found: Any, whole: Any) -> bool:
    """Whether everything that was found is there, and nothing in it but its last member is cut."""
    if isinstance(whole, dict):
        pairs = list(zip(found, whole, strict=False))
        return all(name == other and is_beginning(found[name], whole[name]) for name, other in pairs)
    if isinstance(whole, list):
        return all(is_beginning(*pair) for pair in zip(found, whole, strict=False))
    return bool(found == whole) or isinstance(whole, int | float)


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":"), (",\n", " :\n")])
def test_what_is_whole_is_kept(separators: tuple[str, str]) -> None:
    text = json.dumps(WHOLE, separators=separators, ensure_ascii=False)
    sizes = []
    for end in range(len(text)):
        found = read_cut_object(text[:end])
        assert is_beginning(found, WHOLE), text[:end]
        sizes.append(len(json.dumps(found)))
    assert read_cut_object(text) == WHOLE
    assert sizes[-1] == len(json.dumps(WHOLE))
    assert read_cut_object('{"a": 1, "b": "x') == {"a": 1}
    assert read_cut_object('{"a": [1, {"b": 2}, {"c') == {"a": [1, {"b": 2}, {}]}


@pytest.mark.parametrize("text", ["", "{", "nothing", "[1", '{"a', "}}}}", "[[[[" * 5000, '{"a":' * 5000])
def test_what_holds_nothing_is_empty(text: str) -> None:
    read_cut_object(text)
