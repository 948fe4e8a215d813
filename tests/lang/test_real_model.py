"""Programs on the small real model: joint scoring, sharing, the model's own chat template (C01, C04, C08, C15)."""

import asyncio
import datetime
import enum
import itertools
import math
import re
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

import sgl
from sgl_runtime.config import ModelSection
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.tokenizer.tokenizer import load_tokenizer

pytestmark = [pytest.mark.model, pytest.mark.timeout(120)]


class Recording:
    """An engine that keeps what it was sent and answered."""

    def __init__(self, engine):
        self.engine = engine
        self.exchanges = []

    async def call(self, path, payload):
        reply = await self.engine.call(path, payload)
        self.exchanges.append((path, payload, reply))
        return reply

    def stream(self, path, payload):
        return self.engine.stream(path, payload)


def forced(name, value):
    return sgl.gen(name, regex=re.escape(value))


CHOICES = ["zy dog", "te dog", "mb", " dog", "ptop", "test"]
PROMPT = "The quick brown fox jumps over the la"


@sgl.function
def picking(s, parts, choices):
    for part in parts:
        s += part
    s += sgl.select("x", choices)


def test_scores_do_not_depend_on_order_or_on_where_text_is_split(engine):
    expected = None
    for parts in ([PROMPT], [PROMPT[:-1], PROMPT[-1:]], [PROMPT[:12], PROMPT[12:]]):
        for order in list(itertools.permutations(CHOICES))[::240]:
            state = picking.run(parts, list(order), backend=engine)
            meta = state.get_meta_info("x")
            scores = dict(zip(order, meta["scores"], strict=True))
            expected = expected or scores
            assert scores == pytest.approx(expected, abs=1e-3)
            assert state["x"] == "zy dog"
            assert sum(meta["probabilities"]) == pytest.approx(1.0)


def test_scores_are_the_log_probabilities_of_the_joint_tokens(engine):
    meta = picking.run([PROMPT], CHOICES, backend=engine).get_meta_info("x")
    for choice, score, tokens in zip(CHOICES, meta["scores"], meta["input_token_logprobs"], strict=True):
        ids = engine.tokenize(PROMPT + choice)
        assert [token[1] for token in tokens] == ids[-len(tokens) :]
        reply = engine.generate(
            input_ids=ids, sampling_params={"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0
        )
        logprobs = [entry[0] for entry in reply["meta_info"]["input_token_logprobs"]][-len(tokens) :]
        assert score == pytest.approx(math.fsum(logprobs) / len(tokens), abs=1e-3)


def test_branches_find_their_prefix_in_the_cache(engine):
    @sgl.function
    def sharing(s, scoring):
        s += "A story of a long road. " * 60
        forks = s.fork(4)
        for index, branch in enumerate(forks):
            branch += f"Part {index}: "
            branch += sgl.select("v", ["a", "b"]) if scoring else forced("v", "x")
        forks.join()

    for scoring in (False, True):
        assert sgl.flush_cache(engine) is True
        metas = sharing.run(scoring, backend=engine).get_meta_info("v")["branches"]
        for meta in metas:
            for request in meta.get("requests", [meta]):
                assert request["cached_tokens"] >= request["prompt_tokens"] - 16


def test_the_ids_of_a_dialogue_are_those_of_the_chat_template(engine):
    messages = [
        {"role": "user", "content": "Hello, who are you?"},
        {"role": "assistant", "content": "A small model."},
        {"role": "user", "content": "Say it again"},
    ]

    @sgl.function
    def dialogue(s, system):
        if system:
            s += sgl.system("Be brief.")
        s += sgl.user(messages[0]["content"])
        s += sgl.assistant(messages[1]["content"])
        with s.user():
            s += messages[2]["content"][:5]
            s += messages[2]["content"][5:]
        s += sgl.assistant_begin() + sgl.gen("x", max_tokens=1)

    tokenizer = load_tokenizer(ModelSource.open(ModelSection(model_path="smollm2")))
    assert tokenizer.chat_template is not None
    for system in (False, True):
        transport = Recording(engine)
        dialogue.run(system, backend=transport).sync()
        front = [{"role": "system", "content": "Be brief."}] if system else []
        rendered = tokenizer.chat_template.render([*front, *messages], add_generation_prompt=True)
        _, payload, reply = transport.exchanges[-1]
        assert reply["text_ids"] == tokenizer.encode(rendered, add_bos=True)
        assert "input_ids" not in payload


def test_text_streams_come_to_the_final_text(engine):
    @sgl.function
    def program(s):
        s += sgl.user("Name three colours.")
        with s.assistant():
            s += sgl.gen("x", max_tokens=24)
        s += forced("y", "漢字 👨‍👩‍👧")

    state = program.run(stream=True, temperature=0.0, backend=engine)
    assert "".join(state.text_iter()) == state.text()
    assert "".join(state.text_iter("x")) == state["x"]
    assert state["y"] == "漢字 👨‍👩‍👧"


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Report(BaseModel):
    name: Annotated[str, Field(max_length=12)]
    level: Level
    sizes: Annotated[list[int], Field(max_length=3)]


@pytest.mark.slow
def test_outputs_are_values_of_their_types(engine):
    @sgl.function
    def program(s, wanted):
        s += "A report, as asked for: " + sgl.gen("x", type=wanted, max_tokens=200)

    for wanted in (int, bool, Level, datetime.date, Literal["one", 2], int | None, Report, list[bool]):
        state = program.run(wanted, seed=1, backend=engine)
        if state.get_meta_info("x")["finish_reason"]["type"] == "length":
            # A number may go on for as long as the model likes.
            assert wanted in (int, int | None, Report)
            continue
        assert TypeAdapter(wanted).validate_python(state["x"]) == state["x"]
        assert state.get("x", str) in state.text()


def test_a_model_calls_a_tool_with_arguments_that_fit(engine):
    def report(level: Level, urgent: bool = False) -> str:
        """Files a report."""
        return f"{level.name} {urgent}"

    @sgl.function
    def program(s):
        s += sgl.system(sgl.describe_tools([report]))
        s += sgl.user("File a report of high level.")
        with s.assistant():
            s += sgl.gen("x", tools=[report], tool_choice="required", run_tools=True, max_tokens=200)

    (call,) = program.run(seed=1, backend=engine)["x"]
    assert isinstance(call.arguments["level"], Level)
    assert call.result in {f"{level.name} {urgent}" for level in Level for urgent in (False, True)}


def test_async_programs_run_on_the_engine(engine):
    @sgl.function
    async def program(s, number):
        s += "Numbers: " + forced("x", str(number))
        forks = s.fork(2)
        forks += lambda index: forced("v", f", {index}")
        await forks.join()
        return await s["x"]

    async def main():
        states = await asyncio.gather(*(program.arun(number, backend=engine) for number in range(8)))
        return [(state.ret_value, await state["v"]) for state in states]

    assert asyncio.run(main()) == [(str(number), [", 0", ", 1"]) for number in range(8)]


def test_choices_have_exact_probabilities(engine):
    @sgl.function
    def exact(s):
        s += PROMPT + sgl.select("x", CHOICES, choices_method=sgl.exact_sequence_probability)

    choice = exact.run(backend=engine).choice("x")
    assert choice.text == "zy dog"
    assert sum(choice.probabilities) == pytest.approx(1.0)
    assert choice.probability == max(choice.probabilities)


class Tree(BaseModel):
    kind: Literal["leaf", "branch"]
    sizes: Annotated[list[int], Field(max_length=2)]
    children: Annotated[list["Tree"], Field(max_length=2)]


@pytest.mark.parametrize("wanted", [pytest.param(Tree, marks=pytest.mark.slow), dict[str, int]])
def test_recursive_models_and_open_dicts_come_back_whole_or_as_truncated(engine, wanted):
    @sgl.function
    def program(s):
        s += "A node as JSON: " + sgl.gen("x", type=wanted, max_tokens=60)

    for seed in (1, 2):
        state = program.run(seed=seed, backend=engine)
        if state.get_meta_info("x")["finish_reason"]["type"] == "length":
            with pytest.raises(sgl.TruncatedError, match="was cut after 60 tokens"):
                state["x"]
        else:
            assert TypeAdapter(wanted).validate_json(state.get("x", str)) == state["x"]
