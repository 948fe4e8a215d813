"""Typed results: values of Python types, what was cut, partial objects (C16; rows 12 and 26 of table C)."""

import asyncio
import dataclasses
import datetime
import enum
import itertools
import json
import re
import uuid
from decimal import Decimal
from typing import Annotated, Literal, Optional

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

import sgl
from sgl.output_types import output_type
from sgl.results import read_beginning

pytestmark = pytest.mark.timeout(20)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "dark blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Movie(TypedDict):
    title: str
    year: int


class Node(BaseModel):
    colour: Colour
    sizes: Annotated[list[int], Field(max_length=3)]
    note: str | None = None
    children: list["Node"] = []


TREE = Node(colour=Colour.RED, sizes=[], children=[Node(colour=Colour.BLUE, sizes=[2])])


@sgl.function
def typed(s, wanted, max_tokens=None):
    s += "v: " + sgl.gen("x", type=wanted, max_tokens=max_tokens) + "."


CASES = [
    (int, "-42", -42),
    (int, "42 apples", 42),
    (float, "2.5e3", 2500.0),
    (bool, "False", False),
    (str, "any text", "any text"),
    (Literal["a.b", 3, None], "a.b", "a.b"),
    (Literal["a.b", 3, None], "3", 3),
    (Literal["a.b", 3, None], "None", None),
    (Colour, "dark blue", Colour.BLUE),
    (Level, "10", Level.HIGH),
    (datetime.date, "2024-02-29", datetime.date(2024, 2, 29)),
    (datetime.time, "23:59:00", datetime.time(23, 59)),
    (datetime.datetime, "2024-02-29T23:59:00", datetime.datetime(2024, 2, 29, 23, 59)),
    (Optional[int], "None", None),  # noqa: UP045 - both spellings are taken
    (int | None, "7", 7),
    (float | int | bool, "7", 7),
    (float | int | bool, "7.5", 7.5),
    (int | str, '"seven"', "seven"),
    (list[int], "[1, 2]", [1, 2]),
    (tuple[int, str], '[1, "a"]', (1, "a")),
    (dict[str, Colour], '{"a": "red"}', {"a": Colour.RED}),
    (Annotated[int, Field(ge=0, le=9)], "7", 7),
    (Point, '{"x": 1, "y": 2.5}', Point(1, 2.5)),
    (Movie, '{"title": "M", "year": 1931}', {"title": "M", "year": 1931}),
    (Node, '{"colour": "red", "sizes": [1]}', Node(colour=Colour.RED, sizes=[1])),
    (list[Point], '[{"x": 1, "y": 2.0}]', [Point(1, 2.0)]),
    (Decimal, "-12.50", Decimal("-12.50")),
    (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
    (uuid.UUID | None, "None", None),
    (list[Decimal], "[1.5]", [Decimal("1.5")]),
    (dict[str, list[Point]], '{"a": [{"x": 1, "y": 2.0}], "b": []}', {"a": [Point(1, 2.0)], "b": []}),
    (tuple[datetime.date, ...], '["2024-02-29"]', (datetime.date(2024, 2, 29),)),
    (Node, '{"colour": "red", "sizes": [], "children": [{"colour": "dark blue", "sizes": [2], "children": []}]}', TREE),
]


def test_terms_of_outlines_are_types_too():
    terms = pytest.importorskip("outlines").types
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for wanted, answer, value in (
        (terms.date, "2024-02-29", "2024-02-29"),
        ("v" + terms.digit.at_least(2), "v12", "v12"),
        (terms.either("yes", "no"), "no", "no"),
        (terms.json_schema(schema), '{"a": 1}', {"a": 1}),
    ):
        state = typed.run(wanted, backend=sgl.ScriptedBackend(answer))
        assert state["x"] == value
        assert state.get("x", str) == answer
    with pytest.raises(sgl.ArgumentError, match="type is an outlines CFG, which is no regex"):
        sgl.gen("x", type=terms.cfg('start: "a"'))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("wanted", "answer", "value"), CASES)
def test_the_variable_holds_a_value_of_the_type(wanted, answer, value, stream):
    if answer == "42 apples":
        answer = "42 "
    state = typed.run(wanted, stream=stream, backend=sgl.ScriptedBackend(answer))
    assert state["x"] == value
    assert type(state["x"]) is type(value)
    # The text of the state is what the model wrote; the number's end, white space, is cut off.
    assert state.text() == f"v: {answer.strip()}."
    assert "".join(state.text_iter("x")) == state.get("x", str) == answer.strip()


@pytest.mark.parametrize(("wanted", "answer", "value"), CASES)
def test_the_constraint_accepts_what_is_read(wanted, answer, value):
    constraint = output_type(wanted).constraint
    if constraint is not None and constraint.kind == "regex":
        assert re.fullmatch(constraint.text, answer.removesuffix(" apples"))
    elif constraint is not None:
        import jsonschema

        jsonschema.validate(json.loads(answer), json.loads(constraint.text))


@pytest.mark.parametrize(
    ("wanted", "text"), [(int, "x"), (Colour, "green"), (datetime.date, "2023-02-30"), (Point, "{}")]
)
def test_text_that_is_no_value_raises_where_it_is_read(wanted, text):
    @sgl.function
    def plain(s):
        s += "p" + sgl.gen("x")

    state = plain.run(backend=sgl.ScriptedBackend(text))
    with pytest.raises(sgl.ResultError, match=r"program 'plain': variable 'x' is .*, which is no ") as caught:
        state.get("x", wanted)
    assert caught.value.text == text
    assert isinstance(caught.value.__cause__, ValueError)
    assert state["x"] == text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("wanted", "answer"), [(Node, '{"colour": "red", "sizes": [1]}'), (int, "1234567"), (Colour, "dark blue")]
)
def test_what_was_cut_raises_and_keeps_its_text(wanted, answer, stream):
    state = typed.run(wanted, 5, stream=stream, backend=sgl.ScriptedBackend(answer))
    with pytest.raises(
        sgl.TruncatedError, match=r"'typed': variable 'x' at .*:\d+ was cut after 5 tokens, so it is no whole"
    ):
        state["x"]
    assert "x" not in state
    assert state.get("x", str) == answer[:5]
    # The state goes on: its text and the meta info are there.
    assert state.text() == f"v: {answer[:5]}."
    assert "".join(state.text_iter("x")) == answer[:5]
    assert state.get_meta_info("x")["finish_reason"] == {"type": "length", "length": 5}
    assert state.error() is None


def test_a_schema_is_a_class_a_dict_or_text_and_read_as_the_class():
    schema = Node.model_json_schema()
    answer = '{"colour": "red", "sizes": [1], "children": [{"colour": "dark blue", "sizes": []}]}'
    sent = []
    for form in ({"type": Node}, {"json_schema": Node}, {"json_schema": schema}, {"json_schema": json.dumps(schema)}):
        backend = sgl.ScriptedBackend(answer)

        @sgl.function
        def program(s, form=form):
            s += "p" + sgl.gen("x", **form)

        state = program.run(backend=backend)
        assert state.get("x", Node).children[0].colour is Colour.BLUE
        assert state.text() == "p" + answer
        sent.append(json.loads(backend.model.calls[0].sampling["json_schema"]))
    assert all(item == sent[0] for item in sent)


def test_joined_and_set_values_can_be_read_as_types():
    @sgl.function
    def program(s):
        s += "p"
        forks = s.fork(2)
        forks += lambda index: sgl.gen("v", regex=str(index))
        forks.join()
        s["set"] = {"x": 1, "y": 2}

    state = program.run(backend=sgl.ScriptedBackend())
    assert state.get("v", list[int]) == [0, 1]
    assert state.get("set", Point) == Point(1, 2.0)
    with pytest.raises(sgl.ResultError, match="variable 'set' is "):
        state.get("set", int)
    with pytest.raises(sgl.UnknownVariableError):
        state.get("nothing", int)


def test_a_branch_whose_value_cannot_be_read_is_a_failed_slot():
    @sgl.function
    def program(s, on_error):
        s += "p"
        forks = s.fork(2)
        forks += lambda index: f"{index}" + sgl.gen("v", type=int, max_tokens=1 + 3 * index)
        forks.join(on_error=on_error)

    state = program.run("collect", backend=sgl.ScriptedBackend("12 "))
    assert isinstance(state["v"][0], sgl.TruncatedError)
    assert state["v"][1] == 12
    with pytest.raises(sgl.TruncatedError):
        program.run("raise", backend=sgl.ScriptedBackend("12 "))


ANSWER = '{"title": "A \\"b\\" 12", "year": 1931}'


def test_partial_objects_grow_to_the_value():
    state = typed.run(Movie, stream=True, backend=sgl.ScriptedBackend(ANSWER))
    *partials, value = state.partial_iter("x")
    assert value == {"title": 'A "b" 12', "year": 1931}
    assert all(isinstance(partial, sgl.Partial) for partial in partials)

    async def read():
        return [partial async for partial in (await typed.arun(Movie, stream=True, backend=backend)).partial_iter("x")]

    backend = sgl.ScriptedBackend(ANSWER)
    assert asyncio.run(read())[-1] == value


def test_a_beginning_holds_what_is_whole():
    partials = [read_beginning(ANSWER[:size]) for size in range(len(ANSWER) + 1)]
    assert partials[0] is None
    data = [partial.data for partial in partials if partial is not None]
    assert data[0] == {}
    assert {"title": 'A "b" 1'} in data
    # A string may grow; a number is there when it is whole.
    assert {item["year"] for item in data if "year" in item} == {1931}
    for before, after in itertools.pairwise(data):
        assert after.keys() >= before.keys()
        assert after.get("title", "").startswith(before.get("title", ""))


def test_partial_objects_of_a_cut_output_end_in_the_error():
    state = typed.run(Movie, 12, stream=True, backend=sgl.ScriptedBackend(ANSWER))
    partials = state.partial_iter("x")
    seen = []

    def read_all():
        for partial in partials:
            seen.append(partial)  # noqa: PERF402 - what came before the error is wanted

    with pytest.raises(sgl.TruncatedError):
        read_all()
    assert seen[-1] == sgl.Partial({"title": "A"})


@pytest.mark.parametrize("wanted", [re.Scanner, lambda: None, enum.Enum("Empty", [])])
def test_types_that_have_no_form_are_refused_where_the_gen_is_built(wanted):
    with pytest.raises(sgl.ArgumentError, match="type"):
        sgl.gen("x", type=wanted)


def test_a_type_goes_with_no_other_constraint():
    with pytest.raises(sgl.ArgumentError, match="type and regex"):
        sgl.gen("x", type=int, regex="a")
    with pytest.raises(sgl.ArgumentError, match="choices and type"):
        sgl.gen("x", type=int, choices=["a"])
    with pytest.raises(TypeError, match="type"):
        sgl.gen_int("x", type=int)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "strng"}, r"json_schema\.type is 'strng'; it must be one of string"),
        ({"properties": {"a": {"items": {"enum": []}}}}, r"json_schema\.properties\.a\.items\.enum is \[\]"),
        ({"anyOf": [{"type": "string"}, 5]}, r"json_schema\.anyOf\[1\] is 5; it must be a schema"),
        ({"required": "a"}, r"json_schema\.required is 'a'"),
        ({"minLength": -1}, r"json_schema\.minLength is -1"),
        ({"$defs": []}, r"json_schema\.\$defs is \[\]"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_its_path(schema, message):
    for form in (schema, json.dumps(schema)):
        with pytest.raises(sgl.ArgumentError, match=message):
            sgl.gen("x", json_schema=form)


@pytest.mark.parametrize(("regex", "position"), [(r"(a)\1", 3), (r"(?P<q>.)x(?P=q)", 9), (r"[\1]\\1(b)\1", 10)])
def test_a_regex_that_refers_back_is_refused_with_its_position(regex, position):
    with pytest.raises(sgl.ArgumentError, match=rf"refers back to a group at position {position},"):
        sgl.gen("x", regex=regex)


@pytest.mark.parametrize("regex", [r"[\1]", r"\\1", r"a[]\]\1]", r"(?=a).", r"(?:\d{1,2})+"])
def test_a_regex_that_only_looks_like_it_is_taken(regex):
    assert sgl.gen("x", regex=regex).constraint.text == regex


def test_post_makes_the_value_and_leaves_the_text():
    @sgl.function
    def program(s):
        s += "p" + sgl.gen("x", regex="abc", post=str.upper) + "q" + sgl.gen("n", type=int, post=lambda n: n + 1)
        s += "r" + sgl.gen("bad", regex="z", post=lambda text: {}[text])

    state = program.run(backend=sgl.ScriptedBackend("41 "))
    assert (state["x"], state["n"], state.text()) == ("ABC", 42, "pabcq41rz")
    assert state.get("x", str) == "abc"
    with pytest.raises(sgl.ResultError, match=r"variable 'bad' at .* is 'z', for which post raised KeyError: 'z'"):
        state["bad"]
    with pytest.raises(sgl.ArgumentError, match="post is 5"):
        sgl.gen("x", post=5)
    with pytest.raises(sgl.ArgumentError, match="choices and post"):
        sgl.gen("x", choices=["a"], post=str)
