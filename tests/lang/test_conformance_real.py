"""The conformance programs on the small real model, and the same ones on the script (C04, C15: see test_real_model.py).

Every expectation is forced by constraints: nothing depends on what the model knows.
"""

import asyncio
import math
import re
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

import sgl

pytestmark = pytest.mark.timeout(60)

LONG_TEXT = "漢字かな交じり文と emoji 👨‍👩‍👧‍👦 und e\u0301 combining 한국어 ✓ end of it"


@pytest.fixture(params=["scripted", pytest.param("engine", marks=pytest.mark.model)])
def backend(request):
    return sgl.ScriptedBackend("no answer") if request.param == "scripted" else request.getfixturevalue("engine")


class Failing:
    """A backend's transport that fails when a prompt ends in a given text."""

    def __init__(self, transport, ending):
        self.transport, self.ending = transport, ending

    def fail_if_asked(self, path, payload):
        if path == "/generate" and payload.get("text", "").endswith(self.ending):
            raise ConnectionResetError("the wire is cut")

    async def call(self, path, payload):
        self.fail_if_asked(path, payload)
        return await self.transport.call(path, payload)

    async def stream(self, path, payload):
        self.fail_if_asked(path, payload)
        async for event in self.transport.stream(path, payload):
            yield event


def forced(name, value, **options):
    return sgl.gen(name, regex=re.escape(value), max_tokens=200, **options)


def test_c01_a_forced_chain_is_exact(backend):
    @sgl.function
    def chain(s):
        s += "First " + forced("a", "A1") + " then " + forced("b", "B-2")
        s += "\nand " + sgl.select("c", ["only"]) + forced("d", "é3") + "."

    state = chain.run(backend=backend)
    assert state.text() == "First A1 then B-2\nand onlyé3."
    assert state.variables() == ["a", "b", "c", "d"]
    assert [state[name] for name in state.variables()] == ["A1", "B-2", "only", "é3"]
    metas = [state.get_meta_info(name) for name in ("a", "b", "d")]
    assert all(meta["finish_reason"]["type"] == "stop" and meta["prompt_tokens"] > 0 for meta in metas)
    assert state.usage().completion_tokens == sum(meta["completion_tokens"] for meta in metas) >= 3


@pytest.mark.slow
@pytest.mark.model
def test_c02_programs_return_before_generation_ends_and_overlap(engine):
    @sgl.function
    def slow(s):
        s += "Count:" + sgl.gen("x", max_tokens=120, ignore_eos=True) + " end"

    @sgl.function
    def quick(s):
        s += "Say " + forced("y", "B")

    first = slow.run(backend=engine)
    assert "x" not in first
    assert quick.run(backend=engine)["y"] == "B"
    assert "x" not in first
    assert first.get_meta_info("x")["completion_tokens"] == 120
    assert "x" in first
    assert first.text().endswith(" end")


@pytest.mark.model
def test_c03_scores_are_those_of_hand_computation(engine):
    options = ["blue", "very blue indeed", "a colour"]

    @sgl.function
    def program(s, method):
        s += "On a clear day the sky is " + sgl.select("x", options, choices_method=method)

    metas = {
        method: program.run(method, backend=engine).get_meta_info("x")
        for method in (
            sgl.token_length_normalized,
            sgl.exact_sequence_probability,
            sgl.unconditional_likelihood_normalized,
        )
    }
    logprobs = [[token[0] for token in tokens] for tokens in metas[sgl.token_length_normalized]["input_token_logprobs"]]
    means = [math.fsum(values) / len(values) for values in logprobs]
    assert metas[sgl.token_length_normalized]["scores"] == pytest.approx(means, abs=1e-4)
    sums = [math.fsum(values) for values in logprobs]
    shares = metas[sgl.exact_sequence_probability]["probabilities"]
    total = math.fsum(map(math.exp, sums))
    assert shares == pytest.approx([math.exp(value) / total for value in sums], abs=1e-4)
    meta = metas[sgl.unconditional_likelihood_normalized]
    gains = [
        math.fsum(token[0] - own for token, own in zip(tokens, alone, strict=True)) / len(tokens)
        for tokens, alone in zip(meta["input_token_logprobs"], meta["unconditional_token_logprobs"], strict=True)
    ]
    assert meta["scores"] == pytest.approx(gains, abs=1e-4)


@pytest.mark.parametrize(
    "choices", [["one"], ["a", "ab", "abc"], [" spaced", "tight"], [f"item {number}" for number in range(100)]]
)
def test_c05_odd_choices_give_one_of_them(backend, choices):
    @sgl.function
    def program(s):
        s += "Pick: " + sgl.select("x", choices)

    state = program.run(backend=backend)
    assert state["x"] in choices
    assert len(state.get_meta_info("x")["scores"]) == len(choices)


def test_c06_gathers_are_aligned(backend):
    @sgl.function
    def program(s):
        s += "P"
        s["kept"] = "old"
        forks = s.fork(5)
        for index, branch in enumerate(forks):
            branch += f" {index}:" + forced("v", str(index))
            if index % 2 == 0:
                branch += forced("e", f"e{index}")
            if index == 3:
                branch["kept"] = "new"
        forks.join()
        assert [branch.get_meta_info("v")["completion_tokens"] > 0 for branch in forks] == [True] * 5
        again = s.fork(2)
        again += lambda index: forced("v", f"again {index}")
        again.join()

    state = program.run(backend=backend)
    assert state["e"] == ["e0", None, "e2", None, "e4"]
    assert state["kept"] == "old"
    assert state["v"] == ["again 0", "again 1"]


def test_c07_nested_branches_do_not_see_each_other(backend):
    texts = []

    @sgl.function
    def program(s):
        s += "P"
        outer = s.fork(3)
        s += " later"
        inners = [branch.fork(3) for branch in outer]
        for i, inner in enumerate(inners):
            for j, leaf in enumerate(inner):
                leaf += f"<{i}{j}>" + forced("v", f"{i}.{j}")
        for inner in inners:
            texts.extend(leaf.text() for leaf in inner)
            inner.join()
        outer.join()

    state = program.run(backend=backend)
    assert state["v"] == [[f"{i}.{j}" for j in range(3)] for i in range(3)]
    assert texts == [f"P<{i}{j}>{i}.{j}" for i in range(3) for j in range(3)]
    assert state.text() == "P later"


def test_c08_branches_share_their_prefix(backend):
    @sgl.function
    def program(s, scoring):
        s += "A story of a long road. " * 100
        forks = s.fork(8)
        for index, branch in enumerate(forks):
            branch += f"Part {index}: " + (sgl.select("v", ["x", "y"]) if scoring else forced("v", "x"))
        forks.join()

    for scoring in (False, True):
        assert sgl.flush_cache(backend) is True
        for meta in program.run(scoring, backend=backend).get_meta_info("v")["branches"]:
            for request in meta.get("requests", [meta]):
                assert request["cached_tokens"] >= request["prompt_tokens"] - 16


def test_c09_texts_are_joined_and_generation_goes_on(backend):
    @sgl.function
    def program(s, mode):
        s += "P"
        forks = s.fork(3)
        forks += lambda index: f"<{index}>"
        forks.join(mode)
        s += "E" + forced("x", " on")

    assert program.run("concatenate", backend=backend).text() == "P<0><1><2>E on"
    with pytest.raises(sgl.ArgumentError, match="concatenate"):
        program.run("unheard of", backend=backend)


@pytest.mark.parametrize("how", ["plain", "streamed", "in a role", "inline"])
def test_c10_a_failure_reaches_every_reader(backend, how):
    @sgl.function
    def program(s):
        if how == "in a role":
            s += sgl.user("q") + sgl.assistant_begin()
        s += "one:" + forced("a", "1")
        s += " two:" + forced("b", "2")
        s += " three:" + forced("c", "3")
        forks = s.fork(2)
        forks += forced("d", "4")
        return forks

    transport = backend.model if isinstance(backend, sgl.ScriptedBackend) else backend
    run = {"backend": Failing(transport, " two:"), "stream": how == "streamed", "use_thread": how != "inline"}
    if how == "inline":
        with pytest.raises(sgl.ProgramError, match=r"gen 'b' at .*the wire is cut"):
            program.run(**run)
        return
    state = program.run(**run)
    error = state.error()
    assert (error.variable, type(error.__cause__)) == ("b", ConnectionResetError)
    assert state["a"] == "1"
    reads = [lambda: state["b"], lambda: state["c"], state.text, state.messages, lambda: list(state.text_iter())]
    if how != "streamed":
        # A streaming run's body may not have come to its fork yet.
        forks = state.ret_value
        reads += [lambda: forks[1]["d"], forks.join]
    for read in reads:
        with pytest.raises(sgl.ProgramError) as caught:
            read()
        assert caught.value is error
    assert state.text(partial=True).endswith("one:1 two:")


@pytest.mark.parametrize(("workers", "num_items"), [(1, 50), (32, 100)])
def test_c11_a_batch_keeps_results_and_failures_in_order(backend, workers, num_items):
    @sgl.function
    def program(s, number):
        if number == 17:
            raise ZeroDivisionError("in the body")
        s += f"Item {number}" + (" fails:" if number == 42 else ":") + forced("x", f" {number}")

    transport = backend.model if isinstance(backend, sgl.ScriptedBackend) else backend
    failing = Failing(transport, " fails:")
    items = [(number,) if number % 2 else {"number": number} for number in range(num_items)]
    results = program.run_batch(items, backend=failing, num_threads=workers, on_error="collect")
    failures = [result for result in results if isinstance(result, sgl.BatchFailure)]
    assert [failure.index for failure in failures] == [17, 42]
    assert "ZeroDivisionError: in the body" in failures[0].traceback
    right = [result["x"] for index, result in enumerate(results) if index not in (17, 42)]
    assert right == [f" {index}" for index in range(num_items) if index not in (17, 42)]
    with pytest.raises(ZeroDivisionError):
        program.run_batch(items[:20], backend=failing, num_threads=workers)
    with pytest.raises(TypeError, match="item 1 of run_batch"):
        program.run_batch([(1,), {"numbr": 2}], backend=failing)


def test_c12_streams_are_whole(backend):
    @sgl.function
    async def program(s, number):
        s += f"{number}: " + forced("x", LONG_TEXT) + "!"

    async def read(number):
        state = await program.arun(number, backend=backend, stream=True)
        name = "x" if number % 2 else None
        pieces, counts = [], []
        async for piece, meta in state.text_async_iter(name, return_meta_data=True):
            pieces.append(piece)
            counts.append(meta.get("completion_tokens", 0))
            if number % 3 == 0:
                await asyncio.sleep(0)
        assert all(pieces)
        assert "\ufffd" not in "".join(pieces)
        assert name is None or counts == sorted(counts)
        return "".join(pieces) == (await state["x"] if name else await state.text())

    async def main():
        return await asyncio.gather(*map(read, range(12)))

    assert asyncio.run(main()) == [True] * 12


@pytest.mark.parametrize("stop", ["END", ["END", "EN"], ("bar", "END")])
@pytest.mark.parametrize("stream", [False, True])
def test_c13_stops_end_constrained_text_too(backend, stop, stream):
    @sgl.function
    def program(s):
        s += "Say: " + forced("x", "foo END bar", stop=stop) + "|" + forced("y", "END", stop="END")

    state = program.run(backend=backend, stream=stream)
    assert "".join(state.text_iter("x")) == state["x"] == "foo "
    assert (state["y"], state.text()) == ("", "Say: foo |")
    assert state.get_meta_info("x")["finish_reason"]["matched"] in (["END", "EN"] if stop == ["END", "EN"] else ["END"])


def test_c14_parameters_are_those_that_were_said(backend):
    stops = ["never"]

    @sgl.function
    def program(s, n, stop, stream):
        s += f"{n}{stop}{stream}" + forced("a", "x", stop=stops, temperature=0.0) + forced("b", "y", stop=[])

    for state in (program.run(9, "s", True, backend=backend), *program.run_batch([(9, "s", True)], backend=backend)):
        assert state.text() == "9sTruexy"
        first, second = (state.get_meta_info(name)["sampling_params"] for name in "ab")
        assert (first["stop"], first["temperature"], second["stop"], second["temperature"]) == (["never"], 0.0, [], 1.0)
    assert stops == ["never"]
    with pytest.raises(TypeError, match="temprature"):
        program.run(1, "s", True, temprature=0.5, backend=backend)


class Node(BaseModel):
    kind: Literal["leaf", "branch"]
    sizes: Annotated[list[int], Field(max_length=2)]
    note: Literal["short"] | None = None


@pytest.mark.model
def test_c16_objects_come_back_whole_or_as_truncated(engine):
    @sgl.function
    def program(s, wanted, limit):
        s += "A node as JSON: " + sgl.gen("x", type=wanted, max_tokens=limit)

    whole = program.run(Node, 400, seed=4, backend=engine)
    assert isinstance(whole["x"], Node)
    assert Node.model_validate_json(whole.get("x", str)) == whole["x"]
    cut = program.run(Node, 5, seed=4, backend=engine)
    with pytest.raises(sgl.TruncatedError, match="x"):
        cut["x"]
    assert cut.get_meta_info("x")["finish_reason"]["type"] == "length"
    with pytest.raises(sgl.ArgumentError, match=r"json_schema\.type"):
        sgl.gen("x", json_schema={"type": "objekt"})
    with pytest.raises(sgl.ArgumentError, match="refers back"):
        sgl.gen("x", regex=r"(a)\1")


def test_c17_a_loop_with_a_tool_runs_inline(backend):
    calls = []

    @sgl.function
    def act(s, action, argument):
        s += "Action: " + sgl.select("action", [action]) + "\n"
        if s["action"] == "Finish":
            return False
        s += "Input: " + sgl.gen("input", regex=str(argument), max_tokens=20, post=int) + "\n"
        calls.append(s["input"])
        s += f"Found {s['input'] * 2}\n"
        return True

    @sgl.function
    def nested(s, depth):
        s += "(" + forced("level", str(depth))
        if depth > 1:
            nested(s, depth - 1)
        s += ")"

    @sgl.function
    def react(s):
        s += "Question\n"
        for action, argument in (("Search", 7), ("Search", 14), ("Finish", 0)):
            if not act(s, action, argument):
                break
        nested(s, 3)
        return "done"

    state = react.run(backend=backend)
    search = "Action: Search\nInput: {}\nFound {}\n"
    transcript = f"Question\n{search.format(7, 14)}{search.format(14, 28)}Action: Finish\n(3(2(1)))"
    assert (state.text(), state.ret_value, calls, state.variables()) == (transcript, "done", [7, 14], [])
    assert act.run("Search", 5, backend=backend).ret_value is True
