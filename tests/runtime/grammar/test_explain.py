"""`sgl grammar explain`: what it says, and its drawings."""

import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from sgl_runtime.cli import main
from sgl_runtime.config import GrammarConfig
from sgl_runtime.errors import GrammarError
from sgl_runtime.grammar.base import GrammarSpec, GrammarVocabulary
from sgl_runtime.grammar.compiler import compile_automaton
from sgl_runtime.grammar.drawing import DrawnPart, EdgeKind, bytes_label, draw, to_dot
from sgl_runtime.grammar.drawing_layout import lay_out
from sgl_runtime.grammar.drawing_svg import to_svg
from sgl_runtime.grammar.explain import explain, forced_share, kind_of

TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "properties": {"leaf": {"type": "boolean"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "required": ["leaf"],
            "type": "object",
        }
    },
}
CONFIG = GrammarConfig(json_whitespace="compact")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, list[str]]]:
    code = main(["grammar", "explain", *arguments])
    rows: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        rows.setdefault(line[:14].strip(), []).append(line[14:])
    return code, rows


def parts_of(kind: str, text: str) -> list[DrawnPart]:
    return draw(compile_automaton(GrammarSpec(kind, text), CONFIG))


def test_a_regex(capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = run(capsys, "(yes|no)!*")
    assert code == 0
    assert rows["kind"] == ["regex"]
    assert rows["tier"] == ["fsm: an automaton, masks on the device"]
    assert rows["states"] == ["5"]
    assert rows["byte classes"] == ["7"]
    assert rows["forced"] == ["60% of the states have one way out"]
    assert re.fullmatch(r"[\d.]+ ms( \(in Python\))?", rows["compiled in"][0])


def test_items_that_are_compared_are_the_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = run(capsys, '{"items": {"type": "string"}, "uniqueItems": true}')
    assert code == 0
    assert rows["tier"] == ["fsm: an automaton, masks on the host, which compares the items that must differ"]


def test_a_schema_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    schema = {
        "title": "t",
        "properties": {"a/b": {"type": "string", "maxLenght": 3, "colour": {"minItem": 1}}, "u": {"pattern": "(a)\\1"}},
        "extends": {},
    }
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema))
    code, rows = run(capsys, str(path))
    assert code == 1
    assert rows["tier"] == ["none: it is refused"]
    assert rows["annotations"] == ["title (without effect)"]
    assert rows["unknown word"] == [
        "#/properties/a~1b/colour (without effect)",
        "#/properties/a~1b/maxLenght (without effect; did you mean maxLength?)",
    ]
    assert [problem.split()[0] for problem in rows["problem"]] == ["#/extends", "#/properties/u/pattern"]
    assert int(rows["states"][0]) > 10


@pytest.mark.parametrize(
    ("text", "kind", "code", "word"),
    [
        ('root ::= "a"', "ebnf", 0, "llguidance"),
        ("start: x", "ebnf", 1, "refused"),
        ('["a", "b"]', "choices", 0, "fsm"),
        ("[ab]", "regex", 0, "fsm"),
        ("(a", "regex", 1, "refused"),
        ('{"a": ', "json_schema", 1, "refused"),
        ("true", "json_schema", 0, "fsm"),
        ("12", "regex", 0, "fsm"),
        ('{"structures": [], "triggers": []}', "structural_tag", 1, "refused"),
    ],
)
def test_the_kind_is_seen_from_the_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, kind: str, code: int, word: str
) -> None:
    assert kind_of(text) == kind
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    found, rows = run(capsys, "-")
    assert found == code
    assert rows["kind"] == [kind]
    assert word in rows["tier"][0]
    assert ("problem" in rows) == (code == 1)


def test_what_is_too_large_says_where_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = run(capsys, "[ab]*a[ab]{12}", "--max-grammar-states", "1000")
    assert code == 0
    assert rows["tier"][0].startswith("llguidance")
    assert "at most 1000 are allowed" in rows["note"][0]
    code, rows = run(capsys, "(?=[ab]*a[ab]{12}).*", "--max-grammar-states", "1000")
    assert code == 1
    assert "at most 1000 are allowed" in rows["problem"][0]


def test_policies_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.dumps({"properties": {"a": {}, "b": {}}})
    plain, flexible = (
        int(run(capsys, schema, "--json-whitespace", policy)[1]["states"][0]) for policy in ("compact", "flexible")
    )
    assert flexible > plain


def test_what_cannot_be_read_or_drawn_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments in (
        ["(", "--svg", str(tmp_path / "x.svg")],
        ["a", "--model", "nowhere"],
        ["[a-z]{500}", "--dot", "x"],
    ):
        assert main(["grammar", "explain", *arguments]) == 1
        error = capsys.readouterr().err
        assert error.startswith("sgl grammar: ")
        assert error.count("\n") == 1
    assert main(["grammar", "explain", "a", "--dot", str(tmp_path / "no" / "x")]) == 1
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert main(["grammar", "explain", str(tmp_path / "latin")]) == 1
    assert main(["grammar", "explain", "x" * 10_000, "--max-grammar-states", "10"]) == 0


def test_masks_are_measured_over_a_vocabulary() -> None:
    vocabulary = GrammarVocabulary((None, b"a", b"b", b"ab"), frozenset({0}), 40)
    masks = explain(GrammarSpec("regex", "a*b"), CONFIG, vocabulary).masks
    assert masks is not None
    assert (masks.num_tokens, masks.num_states, masks.num_distinct) == (40, 2, 2)
    assert 0 < masks.median_us <= masks.longest_us


def test_the_forced_share_counts_states_that_leave_no_choice() -> None:
    assert forced_share(compile_automaton(GrammarSpec("regex", "abc"), CONFIG)) == 3 / 4
    assert forced_share(compile_automaton(GrammarSpec("regex", "[ab]c*"), CONFIG)) == 0


@pytest.mark.parametrize(
    ("data", "label"),
    [
        ([97], "a"),
        ([97, 98, 99, 100, 48], "0 a-d"),
        ([32, 34, 10, 0x80, 0x81, 0x82], '\\n ␣ " \\x80-\\x82'),
        (list(range(256)), "any"),
        ([each for each in range(256) if each != 34], 'not "'),
    ],
)
def test_labels_are_short(data: list[int], label: str) -> None:
    assert bytes_label(data) == label


def test_a_drawing_shows_calls_and_returns() -> None:
    main_part, tree, kids = parts_of("json_schema", json.dumps(TREE))
    assert [(edge.label, edge.kind) for edge in main_part.edges] == [("{ (callee 1)", EdgeKind.PUSH)]
    assert [state.is_accepting for state in main_part.states] == [False, True]
    assert {edge.label for edge in tree.edges} >= {'"leaf":', "true", "false", "[ (callee 2)", "}"}
    assert {edge.label for edge in kids.edges} >= {"{ (callee 1)", "]"}
    returns = [tree.states[edge.target] for edge in tree.edges if edge.kind is EdgeKind.POP]
    assert returns
    assert all(state.is_mark and state.name == "return 0" for state in returns)


DRAWN = [
    ("json_schema", json.dumps(TREE)),
    ("json_schema", '{"enum": ["<&>", "\\"", "é"]}'),
    ("regex", r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)"),
    ("regex", "(yes|no|maybe not)[!?]*"),
    ("regex", "(a|b(c|d)*b)*"),
    ("choices", '["<a>", "<b>"]'),
]


@pytest.mark.parametrize(("kind", "text"), DRAWN)
def test_drawings_hold_every_state_and_edge(kind: str, text: str) -> None:
    parts = parts_of(kind, text)
    num_states, num_edges = (
        sum(len(each) for each in lists) for lists in zip(*((p.states, p.edges) for p in parts), strict=True)
    )
    svg = ET.fromstring(to_svg(parts))
    space = "{http://www.w3.org/2000/svg}"
    names = [each for each in svg.iter(f"{space}text") if each.get("class") == "name"]
    labels = [each for each in svg.iter(f"{space}text") if each.get("class") == "label"]
    assert (len(names), len(labels)) == (num_states, num_edges)
    dot = to_dot(parts)
    assert dot.count(" -> ") == num_edges + len(parts)
    assert dot.count("{") - dot.count("}") == sum(
        edge.label.count("{") - edge.label.count("}") for p in parts for edge in p.edges
    )


@pytest.mark.parametrize(("kind", "text"), DRAWN)
def test_nothing_lies_on_something_else(kind: str, text: str) -> None:
    for part in parts_of(kind, text):
        laid_out = lay_out(part)
        places = np.array(laid_out.places)
        distances = np.linalg.norm(places[:, None] - places[None], axis=2) + 1000 * np.eye(len(places))
        assert distances.min() > 30
        assert (places >= 0).all()
        assert places[:, 0].max() <= laid_out.width
        assert places[:, 1].max() <= laid_out.height
        for edge, route in zip(part.edges, laid_out.routes, strict=True):
            assert route[0] == laid_out.places[edge.source]
            assert route[-1] == laid_out.places[edge.target]


def test_large_automata_are_not_drawn() -> None:
    with pytest.raises(GrammarError, match="501 states; at most 400 are drawn"):
        parts_of("regex", "[a-z]{500}")


def test_a_file_that_is_not_there_is_no_regex(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammar", "explain", "schemas/person.json"]) == 1
    assert "there is no file 'schemas/person.json'" in capsys.readouterr().err
    assert main(["grammar", "explain", "--kind", "regex", "person.json"]) == 0
