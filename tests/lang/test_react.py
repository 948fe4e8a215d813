"""Control flow, tools called by the program, composition (C17)."""

import re

import pytest

import sgl

pytestmark = pytest.mark.timeout(20)


class Search:
    """A tool that notes how it is called."""

    def __init__(self):
        self.calls = []

    def __call__(self, number):
        self.calls.append(number)
        return f"found {number * 2}"


@sgl.function
def step(s, action, argument, tool):
    """One action: returns the observation, or None when the loop is to end."""
    s += "Action: " + sgl.select("action", [action]) + "\n"
    if s["action"] == "Finish":
        return None
    s += "Input: " + sgl.gen("input", regex=re.escape(str(argument)), post=int) + "\n"
    observation = tool(s["input"])
    s += f"Observation: {observation}\n"
    return observation


@sgl.function
def react(s, tool, depth=3):
    s += "Question\n"
    s["observations"] = []
    for action, argument in (("Search", 7), ("Search", 14), ("Finish", 0)):
        observation = step(s, action, argument, tool)
        if observation is None:
            break
        s["observations"].append(observation)
    nested(s, depth)
    s += "Answer: " + sgl.gen("answer", regex=re.escape(s["observations"][-1]))
    return s["answer"]


@sgl.function
def nested(s, depth):
    s += "(" + sgl.gen("level", regex=str(depth))
    if depth > 1:
        nested(s, depth - 1)
    s += ")"


TRANSCRIPT = (
    "Question\n"
    "Action: Search\nInput: 7\nObservation: found 14\n"
    "Action: Search\nInput: 14\nObservation: found 28\n"
    "Action: Finish\n"
    "(3(2(1)))Answer: found 28"
)


@pytest.mark.parametrize("stream", [False, True])
def test_a_react_loop_calls_its_tool_with_typed_arguments(stream):
    tool = Search()
    backend = sgl.ScriptedBackend()
    state = react.run(tool, stream=stream, backend=backend)
    assert state.text() == TRANSCRIPT
    assert "".join(state.text_iter()) == TRANSCRIPT
    assert tool.calls == [7, 14]
    assert all(type(call) is int for call in tool.calls)
    assert state.ret_value == state["answer"] == "found 28"
    # The variables of the inline calls are theirs.
    assert state.variables() == ["observations", "answer"]
    # Every call goes on from the ids of those before it.
    prompts = [call.prompt for call in backend.model.calls]
    assert all(TRANSCRIPT.startswith(prompt[: len(prompt)]) for prompt in prompts)
    assert state.get_meta_info("answer")["cached_tokens"] == TRANSCRIPT.index(")))")


def test_the_sub_program_runs_on_its_own_as_well():
    tool = Search()
    state = step.run("Search", 5, tool, backend=sgl.ScriptedBackend())
    assert state.text() == "Action: Search\nInput: 5\nObservation: found 10\n"
    assert (state.ret_value, state["input"], tool.calls) == ("found 10", 5, [5])


def test_recursion_in_separate_runs():
    @sgl.function
    def countdown(s, n):
        s += f"{n}:" + sgl.gen("x", regex="ok")
        return [s["x"]] + (countdown.run(n - 1).ret_value if n > 1 else [])

    sgl.set_default_backend(sgl.ScriptedBackend())
    assert countdown.run(3).ret_value == ["ok", "ok", "ok"]
