"""The scanner of JSON in pieces, against Python's own parser."""

import json
import random
from typing import Any

import pytest

from sgl_runtime.server.tool_parsers.json_scanner import MAX_DEPTH, JsonScanner


def scanned(pieces: list[str]) -> tuple[str, bool]:
    """What belongs to the value, and whether it is whole."""
    scanner, shown = JsonScanner(), ""
    for piece in pieces:
        count, text = scanner.feed(piece)
        shown += text
        if count < len(piece):
            break
    if not scanner.is_done and not scanner.is_wrong:
        scanner.finish()
    return shown, scanner.is_done


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kinds = ["int", "float", "str", "word"] + ["list", "dict"] * (depth < 4)
    match rng.choice(kinds):
        case "int":
            return rng.randint(-(10**12), 10**12)
        case "float":
            return rng.choice([0.5, -1e-7, 2.5e30, 0.0])
        case "str":
            return "".join(rng.choice('ab"\\/é\n{}[],:\u2028😀 ') for _ in range(rng.randint(0, 8)))
        case "word":
            return rng.choice([True, False, None])
        case "list":
            return [random_value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    return {str(rng.randint(0, 99)): random_value(rng, depth + 1) for _ in range(rng.randint(0, 4))}


def test_values_are_whole_in_pieces_of_any_size() -> None:
    rng = random.Random(1)
    for _ in range(400):
        value = random_value(rng)
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
        size = rng.choice([1, 3, 100])
        pieces = [text[begin : begin + size] for begin in range(0, len(text), size)]
        assert scanned(pieces) == (text, True)
        if isinstance(value, dict | list | str):
            # What follows is no part of the value.
            assert scanned([*pieces, " tail"]) == (text, True)
            assert not scanned([text[:-1]])[1]


def test_changed_text_is_taken_as_python_takes_it() -> None:
    rng = random.Random(2)
    num_valid = 0
    for _ in range(3000):
        letters = list(json.dumps([random_value(rng)]))
        for _ in range(rng.randint(1, 2)):
            place = rng.randrange(len(letters))
            letters[place] = rng.choice(['"', "\\", "{", "]", ",", ":", "0", "-", ".", "e", "t", "", " "])
        text = "[" + "".join(letters)[1:]
        try:
            end: int | None = json.JSONDecoder(parse_constant=_refused).raw_decode(text)[1]
        except ValueError:
            end = None
        shown, is_done = scanned([text])
        assert is_done == (end is not None), text
        if end is not None:
            num_valid += 1
            assert shown == text[:end]
    assert num_valid > 300


def _refused(word: str) -> None:
    raise ValueError(word)


@pytest.mark.parametrize(
    "text", ["[01]", "[1.]", "[.5]", "[+1]", "[1e]", "[tru]", "[NaN]", '["\\u12g4"]', "[1 2]", "[1,]"]
)
def test_what_is_no_json_is_wrong(text: str) -> None:
    assert not scanned([text])[1]


def test_control_characters_in_strings_become_escapes() -> None:
    shown, is_done = scanned(['{"a": "x\ny\tz\x01"}'])
    assert is_done
    assert json.loads(shown) == {"a": "x\ny\tz\x01"}


def test_depth_has_a_limit() -> None:
    assert scanned(["[" * MAX_DEPTH + "]" * MAX_DEPTH])[1]
    assert not scanned(["[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)])[1]
