"""Tools: constrained arguments, typed calls, manual and automatic execution, parallel calls (row 16 of table C)."""

import asyncio
import json
import threading
from enum import Enum
from typing import Annotated

import jsonschema
import pytest
from pydantic import BaseModel, Field

import sgl
from sgl.tools import Tool

pytestmark = pytest.mark.timeout(20)


class Unit(Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


class Place(BaseModel):
    city: str


def weather(place: Place, unit: Unit = Unit.CELSIUS) -> str:
    """The weather of a place."""
    return f"sunny in {place.city} ({unit.name})"


def add(a: int, b: Annotated[int, Field(ge=0)], *, copy: bool = False) -> int:
    """The sum of two numbers."""
    return a + b


async def fails(schema: str) -> None:
    raise LookupError(schema)


CALL = '{"name": "add", "arguments": {"a": 2, "b": 3}}'
MARKED = f"<tool_call>\n{CALL}\n</tool_call>"


@sgl.function
def asking(s, tools, **options):
    s += "Q: " + sgl.gen("x", tools=tools, **options) + "."


@pytest.mark.parametrize("stream", [False, True])
def test_a_required_call_is_constrained_and_typed(stream):
    backend = sgl.ScriptedBackend(CALL)
    state = asking.run([weather, add], tool_choice="required", stream=stream, backend=backend)
    (call,) = state["x"]
    assert (call.name, call.arguments, call.is_run, call()) == ("add", {"a": 2, "b": 3}, False, 5)
    assert state.text() == f"Q: {MARKED}."
    assert "".join(state.text_iter("x")) == state.get("x", str) == MARKED
    (request,) = backend.model.calls
    schema = json.loads(request.sampling["json_schema"])
    jsonschema.validate(json.loads(CALL), schema)
    for wrong in (
        {"name": "add", "arguments": {"a": 2}},
        {"name": "add", "arguments": {"a": 2, "b": -1}},
        {"name": "add", "arguments": {"a": 2, "b": 3, "c": 4}},
        {"name": "weather", "arguments": {"place": {"city": 3}}},
        {"name": "other", "arguments": {}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_arguments_are_values_of_their_types():
    answer = '{"name": "weather", "arguments": {"place": {"city": "Oslo"}, "unit": "f"}}'
    state = asking.run([weather, add], tool_choice=weather, backend=sgl.ScriptedBackend(answer))
    (call,) = state["x"].calls
    assert call.arguments == {"place": Place(city="Oslo"), "unit": Unit.FAHRENHEIT}
    assert call() == "sunny in Oslo (FAHRENHEIT)"


@pytest.mark.parametrize("stream", [False, True])
def test_the_model_may_answer_or_call(stream):
    backend = sgl.ScriptedBackend("Just text")
    state = asking.run([add], stream=stream, backend=backend)
    assert (state["x"].text, state["x"].calls, state.text()) == ("Just text", (), "Q: Just text.")
    assert "json_schema" not in backend.model.calls[0].sampling
    backend = sgl.ScriptedBackend(["Let me see. <tool_call>", CALL])
    state = asking.run([add], stream=stream, backend=backend)
    assert (state["x"].text, len(state["x"])) == ("Let me see. ", 1)
    assert "".join(state.text_iter("x")) == f"Let me see. {MARKED}"
    assert "".join(state.text_iter()) == state.text() == f"Q: Let me see. {MARKED}."
    assert [call.prompt for call in backend.model.calls] == ["Q: ", "Q: Let me see. <tool_call>\n"]
    assert len(state.get_meta_info("x")["requests"]) == 2


def test_calls_run_at_the_same_time_and_their_results_are_appended():
    both = threading.Barrier(2, timeout=5.0)

    def slow(n: int) -> int:
        both.wait()
        return n * 2

    calls = [{"name": "slow", "arguments": {"n": n}} for n in (1, 2)]
    calls.append({"name": "fails", "arguments": {"schema": "s"}})
    backend = sgl.ScriptedBackend(json.dumps(calls))
    options = {"tool_choice": "required", "parallel_tool_calls": True, "run_tools": True, "max_new_tokens": 1000}
    state = asking.run([slow, fails], backend=backend, **options)
    first, second, third = state["x"]
    assert [(call.result, call.is_run) for call in (first, second)] == [(2, True), (4, True)]
    assert isinstance(third.error, LookupError)
    results = [
        '{"name": "slow", "result": 2}',
        '{"name": "slow", "result": 4}',
        '{"name": "fails", "error": "LookupError: s"}',
    ]
    told = "".join(f"\n<tool_response>\n{result}\n</tool_response>\n" for result in results)
    assert state.text() == f"Q: <tool_call>\n{json.dumps(calls)}\n</tool_call>{told}."
    assert "".join(state.text_iter("x")) + told + "." == state.text().removeprefix("Q: ")


def test_an_async_program_runs_calls_by_hand():
    async def double(n: int) -> int:
        return n * 2

    @sgl.function
    async def program(s):
        s += "Q" + sgl.gen("x", tools=[double], tool_choice="required")
        return [await call() for call in await s["x"]]

    async def main():
        backend = sgl.ScriptedBackend('{"name": "double", "arguments": {"n": 4}}')
        return (await program.arun(backend=backend)).ret_value

    assert asyncio.run(main()) == [8]


def test_a_call_that_was_cut_raises_and_keeps_its_text():
    state = asking.run([add], tool_choice="required", max_new_tokens=8, backend=sgl.ScriptedBackend(CALL))
    with pytest.raises(sgl.TruncatedError, match="no whole tool call"):
        state["x"]
    assert state.get("x", str) == f"<tool_call>\n{CALL[:8]}\n</tool_call>"
    assert state.error() is None


def test_no_tools_is_a_plain_gen_and_post_gets_the_calls():
    state = asking.run([add], tool_choice="none", backend=sgl.ScriptedBackend("text"))
    assert state["x"] == "text"
    state = asking.run([add], tool_choice="required", post=len, backend=sgl.ScriptedBackend(CALL))
    assert state["x"] == 1


def test_describe_tools_names_every_function_and_the_form_of_a_call():
    text = sgl.describe_tools([weather, add])
    described = [json.loads(line) for line in text.splitlines() if line.startswith('{"name": "') and "desc" in line]
    assert [item["name"] for item in described] == ["weather", "add"]
    assert described[1]["description"] == "The sum of two numbers."
    assert set(described[1]["parameters"]["properties"]) == {"a", "b", "copy"}
    assert "<tool_call>" in text


def untyped(a):
    return a


def variadic(*a: int):
    return a


def positional(a: int, /):
    return a


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": []}, r"tools is \[\]; it must be a non-empty list of functions"),
        ({"tools": [add, 5]}, "tools is 5"),
        ({"tools": [int]}, "tools is <class 'int'>"),
        ({"tools": [add, add]}, "two functions of the name 'add'"),
        ({"tools": [untyped]}, "tool 'untyped': parameter 'a' has no type"),
        ({"tools": [variadic]}, r"tool 'variadic': parameter \*a: int cannot be given by name"),
        ({"tools": [positional]}, "tool 'positional': parameter a: int cannot be given by name"),
        ({"tools": [add], "tool_choice": "sub"}, "tool_choice is 'sub'; it must be one of 'auto', 'required', 'none'"),
        ({"tools": [add], "run_tools": 1}, "run_tools is 1"),
        ({"tools": [add], "regex": "a"}, "regex and tools"),
        ({"tools": [add], "choices": ["a"]}, "choices and tools"),
        ({"tool_choice": "auto"}, "tool_choice is given without tools"),
    ],
)
def test_wrong_tools_are_refused_where_the_gen_is_built(options, message):
    with pytest.raises(sgl.ArgumentError, match=message):
        sgl.gen("x", **options)


def test_a_tool_takes_any_parameter_name():
    def odd(model_config: int, json: str = "x", self_: bool = True) -> None:
        return None

    tool = Tool(odd)
    assert tool.read_arguments({"model_config": 1, "json": "y"}) == {"model_config": 1, "json": "y"}
    with pytest.raises(ValueError, match="validation error"):
        tool.read_arguments({"model_config": 1, "unknown": 2})


def test_the_react_loop_with_tools():
    """A whole agent: the model calls until it answers."""
    answers = [
        "I add. <tool_call>",
        CALL,
        "And again. <tool_call>",
        '{"name": "add", "arguments": {"a": 5, "b": 5}}',
        "It is 10.",
    ]

    @sgl.function
    def agent(s, question):
        s += sgl.system(sgl.describe_tools([add]))
        s += sgl.user(question)
        with s.assistant():
            for turn in range(5):
                s += sgl.gen(f"turn{turn}", tools=[add], run_tools=True)
                if not s[f"turn{turn}"].calls:
                    return s[f"turn{turn}"].text
        return None

    state = agent.run("2 + 3 + 5?", backend=sgl.ScriptedBackend(answers))
    assert state.ret_value == "It is 10."
    assert state["turn1"].calls[0].result == 10
    assert state.variables() == ["turn0", "turn1", "turn2"]
