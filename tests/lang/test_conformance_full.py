"""Conformance programs at the full size that their table states: on the script always, on the small real model as `slow`.

The same programs in small are in test_conformance_real.py, which runs them on both.
"""

import asyncio
import json
import math
import random
import re
import time
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

import sgl
from sgl.backends.scripted import Gate
from sgl.backends.scripted_tokenizer import WordTokenizer
from sgl_runtime.config import ModelSection
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.tokenizer.tokenizer import load_tokenizer

pytestmark = pytest.mark.timeout(600)

ALPHABET = ["a", "é", "漢", "字", "👨‍👩‍👧", "e\u0301", "한", "🏳️‍🌈", " ", "\n", "\u2028"]
WEIGHTS = [12, 4, 2, 2, 1, 2, 2, 1, 6, 1, 1]
NUM_STREAMS = 500


@pytest.fixture(params=["scripted", pytest.param("engine", marks=[pytest.mark.model, pytest.mark.slow])])
def backend(request):
    return sgl.ScriptedBackend("no answer") if request.param == "scripted" else request.getfixturevalue("engine")


def forced(name, value):
    return sgl.gen(name, regex=re.escape(value), max_tokens=400)


def test_c02_the_script_shows_that_bodies_return_first_and_reads_wait():
    gates = {"slow": Gate(), "quick": Gate()}
    backend = sgl.ScriptedBackend("done", before=lambda call: gates[call.prompt.partition(":")[0]])
    durations = []

    @sgl.function
    def program(s, name):
        begin = time.monotonic()
        s += f"{name}:" + sgl.gen("x") + " constants" + " and more"
        durations.append(time.monotonic() - begin)

    slow, quick = program.run("slow", backend=backend), program.run("quick", backend=backend)
    assert len(durations) == 2
    assert "x" not in slow
    # The second overlaps with the first: it ends while that still waits.
    gates["quick"].open()
    assert quick.text() == "quick:done constants and more"
    assert ("x" in quick, "x" in slow) == (True, False)
    gates["slow"].open()
    assert slow["x"] == "done"
    assert "x" in slow


@pytest.mark.model
@pytest.mark.slow
def test_c02_two_hundred_tokens_of_the_real_model(engine):
    @sgl.function
    def program(s):
        s += "Count:" + sgl.gen("x", max_tokens=200, ignore_eos=True) + " constants"
        return "x" in s

    first, second = (program.run(backend=engine) for _ in range(2))
    assert (first.ret_value, second.ret_value) == (False, False)
    assert first.get_meta_info("x")["completion_tokens"] == second.get_meta_info("x")["completion_tokens"] == 200
    assert first.text().endswith(" constants")


# C03: the mean picks 1, greedy 2, the unconditional form 3; one token is certain.
CONDITIONAL = {" one": -1.0, " two": 0.0, " three": -0.2, " four": -0.5, " five": -0.9, " six": -2.0, " seven": -1.5}
UNCONDITIONAL = {" two": -0.1, " three": -0.3, " five": -0.9, " seven": -8.0}
OPTIONS = [" one two three", " four five", " six seven"]
WINNERS = [
    (sgl.token_length_normalized, 0, [-1.2 / 3, -1.4 / 2, -3.5 / 2]),
    (sgl.greedy_token_selection, 1, [-1.2 / 3, -1.4 / 2, -3.5 / 2]),
    (sgl.unconditional_likelihood_normalized, 2, [(-1.0 + 0.1 + 0.1) / 3, -0.5 / 2, (-2.0 + 6.5) / 2]),
    (sgl.exact_sequence_probability, 0, [-1.2, -1.4, -3.5]),
]


def table(context, token):
    return (CONDITIONAL if context.startswith("Q:") else UNCONDITIONAL).get(token, -1.0)


@sgl.function
def choosing(s, prompt, options, method):
    s += prompt + sgl.select("x", options, choices_method=method)


@pytest.mark.parametrize(("method", "winner", "scores"), WINNERS)
def test_c03_each_method_has_its_own_winner(method, winner, scores):
    backend = sgl.ScriptedBackend(logprob=table, tokenizer=WordTokenizer())
    state = choosing.run("Q:", OPTIONS, method, backend=backend)
    meta = state.get_meta_info("x")
    assert state["x"] == OPTIONS[winner]
    assert meta["scores"] == pytest.approx(scores, abs=1e-6)
    # The certain token is there and counts.
    assert meta["input_token_logprobs"][0][1] == [0.0, meta["input_token_logprobs"][0][1][1], " two"]
    tied = sgl.ScriptedBackend(logprob=lambda context, token: 0.0, tokenizer=WordTokenizer())
    assert choosing.run("Q:", OPTIONS, method, backend=tied)["x"] == OPTIONS[0]


@pytest.mark.model
def test_c03_greedy_on_the_real_model_is_that_of_hand_computation(engine):
    options = ["blue", "very blue indeed", "a colour"]
    prompt = "On a clear day the sky is "
    meta = choosing.run(prompt, options, sgl.greedy_token_selection, backend=engine).get_meta_info("x")
    logprobs = [[token[0] for token in tokens] for tokens in meta["input_token_logprobs"]]
    means = [math.fsum(values) / len(values) for values in logprobs]
    longest = max(map(len, logprobs))
    left = range(len(options))
    for column in range(longest):
        at = {index: logprobs[index][column] if column < len(logprobs[index]) else means[index] for index in left}
        left = [index for index in left if at[index] == max(at.values())]
    assert choosing.run(prompt, options, sgl.greedy_token_selection, backend=engine)["x"] == options[left[0]]


@pytest.mark.parametrize("scoring", [False, True])
def test_c08_a_prefix_of_two_thousand_tokens_is_computed_once(backend, scoring):
    @sgl.function
    def program(s):
        s += "A story of a long road. " * (90 if isinstance(backend, sgl.ScriptedBackend) else 290)
        forks = s.fork(8)
        for index, branch in enumerate(forks):
            branch += f"Part {index}: " + (sgl.select("v", ["x", "y"]) if scoring else forced("v", "x"))
        forks.join()

    for _ in range(2):
        assert sgl.flush_cache(backend) is True
        state = program.run(backend=backend)
        for meta in state.get_meta_info("v")["branches"]:
            requests = meta.get("requests", [meta])
            assert max(request["prompt_tokens"] for request in requests) > 2000
            for request in requests:
                assert request["cached_tokens"] >= request["prompt_tokens"] - 16


@pytest.mark.model
@pytest.mark.slow
def test_c08_the_server_computes_prefix_and_suffixes_alone(engine):
    @sgl.function
    def program(s):
        s += "A story of a long road. " * 290
        forks = s.fork(8)
        forks += lambda index: f"Part {index}: " + forced("v", "x")
        forks.join()

    def computed():
        state = sgl.get_server_info(engine)["internal_states"][0]
        return state["prompt_tokens_total"] - state["cached_tokens_total"]

    assert sgl.flush_cache(engine) is True
    before = computed()
    state = program.run(backend=engine)
    metas = state.get_meta_info("v")["branches"]
    prefix = min(meta["prompt_tokens"] for meta in metas)
    assert computed() - before <= prefix + 8 * 16


@pytest.mark.parametrize("workers", [1, 32])
@pytest.mark.parametrize("generator_style", [False, True])
@pytest.mark.parametrize("kind", [dict, tuple])
def test_c11_a_hundred_items_keep_their_order(backend, workers, generator_style, kind):
    begun = []

    @sgl.function
    def program(s, number):
        begun.append(number)
        if number == 17:
            raise ZeroDivisionError("in the body")
        s += f"Item {number}" + (" fails:" if number == 42 else ":") + forced("x", f" {number}")

    class Failing:
        def __init__(self, transport):
            self.transport = transport

        async def call(self, path, payload):
            if path == "/generate" and payload.get("text", "").endswith(" fails:"):
                raise ConnectionResetError("the wire is cut")
            return await self.transport.call(path, payload)

        def stream(self, path, payload):
            return self.transport.stream(path, payload)

    transport = Failing(backend.model if isinstance(backend, sgl.ScriptedBackend) else backend)
    items = [{"number": number} if kind is dict else (number,) for number in range(100)]
    options = {"backend": transport, "num_threads": workers, "generator_style": generator_style}
    results = program.run_batch(items, on_error="collect", **options)
    if generator_style:
        first = next(results)
        assert 99 not in begun
        results = [first, *results]
    assert [index for index, result in enumerate(results) if isinstance(result, sgl.BatchFailure)] == [17, 42]
    assert (results[17].index, results[42].index) == (17, 42)
    assert "ZeroDivisionError: in the body" in results[17].traceback
    assert "the wire is cut" in results[42].traceback
    right = [result["x"] for result in results if not isinstance(result, sgl.BatchFailure)]
    assert right == [f" {number}" for number in range(100) if number not in (17, 42)]
    with pytest.raises((ZeroDivisionError, sgl.ProgramError)):
        list(program.run_batch(items, **options))
    num_requests = len(begun)
    for wrong, message in (({"numbr": 1}, "item 100 of run_batch"), ((1, 2), "item 100 of run_batch")):
        with pytest.raises(TypeError, match=message):
            program.run_batch([*items, wrong], **options)
    assert len(begun) == num_requests


@sgl.function
def streamed(s, value):
    s += "Begin: "
    s += forced("x", value)
    s += " end."


@sgl.function
async def streamed_async(s, value):
    s += "Begin: "
    s += forced("x", value)
    s += " end."


async def read_async(value, name, backend, source):
    state = await streamed_async.arun(value, stream=True, backend=backend)
    pieces, counts = [], []
    async for piece, meta in state.text_async_iter(name, return_meta_data=True):
        pieces.append(piece)
        counts.append(meta.get("completion_tokens", 0))
        for _ in range(source.choice([0, 0, 1, 5])):
            await asyncio.sleep(0)
    assert name is None or counts == sorted(counts)
    check_pieces(pieces, await state["x"] if name else await state.text())
    return await state["x"] == value


def check_pieces(pieces, whole):
    assert "".join(pieces) == whole
    assert "\ufffd" not in whole
    assert all(pieces)


@pytest.mark.timeout(3000)
def test_c12_five_hundred_streams_are_whole(backend):
    source = random.Random(7)
    values = ["".join(source.choices(ALPHABET, WEIGHTS, k=60))[:60] for _ in range(NUM_STREAMS)]

    async def all_async(some):
        # As many at a time as a server would have.
        gate = asyncio.Semaphore(64)

        async def one(number, value):
            async with gate:
                return await read_async(value, "x" if number % 2 else None, backend, source)

        return await asyncio.gather(*(one(number, value) for number, value in enumerate(some)))

    assert asyncio.run(all_async(values[: NUM_STREAMS // 2])) == [True] * (NUM_STREAMS // 2)
    states = []
    for number, value in enumerate(values[NUM_STREAMS // 2 :]):
        states.append((number, value, streamed.run(value, stream=True, backend=backend)))
        if len(states) == 32 or number == NUM_STREAMS // 2 - 1:
            for index, expected, state in states:
                name = "x" if index % 2 else None
                check_pieces(list(state.text_iter(name)), state["x"] if name else state.text())
                assert state["x"] == expected
            states = []


# C15: a second chat model is the same one with another template, one that has a beginning of its own.
OTHER_TEMPLATE = """{{ bos_token }}{% for message in messages %}[{{ message.role }}]
{{ message.content }}
[/{{ message.role }}]
{% endfor %}{% if add_generation_prompt %}[assistant]
{% endif %}"""


@sgl.function
def by_functions(s, system):
    if system:
        s += sgl.system("Be brief.")
    s += sgl.user("Hi " + forced("a", "there")) + sgl.assistant(forced("b", "ok")) + sgl.user("Bye")


@sgl.function
def by_begin_and_end(s, system):
    if system:
        s += sgl.system_begin() + "Be brief." + sgl.system_end()
    s += sgl.user_begin() + "Hi " + forced("a", "there") + sgl.user_end()
    s += sgl.assistant_begin()
    s += forced("b", "ok")
    s += sgl.assistant_end() + sgl.user_begin() + "Bye" + sgl.user_end()


@sgl.function
def by_blocks(s, system):
    if system:
        with s.system():
            s += "Be brief."
    with s.user():
        s += "Hi "
        s += forced("a", "there")
    with s.assistant():
        s += forced("b", "ok")
    s.user("Bye")


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("has_own_template", [True, False])
def test_c15_three_spellings_are_the_ids_of_two_chat_templates(engine, tmp_path, has_own_template):
    path = tmp_path / "template.jinja"
    path.write_text(OTHER_TEMPLATE, encoding="utf-8")
    other = None if has_own_template else sgl.Engine("smollm2", chat_template=str(path), max_total_tokens=512)
    model = other or engine
    tokenizer = load_tokenizer(ModelSource.open(ModelSection(model_path="smollm2")))
    try:
        for system in (False, True):
            states = [each.run(system, backend=model) for each in (by_functions, by_begin_and_end, by_blocks)]
            texts = {state.text() for state in states}
            assert len(texts) == 1
            assert states[0].messages() == states[1].messages() == states[2].messages()
            messages = [{"role": "system", "content": "Be brief."}] if system else []
            messages += [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "ok"}]
            messages += [{"role": "user", "content": "Bye"}]
            assert states[0].messages() == messages
            (text,) = texts
            if other is None:
                assert tokenizer.chat_template is not None
                assert text == tokenizer.chat_template.render(messages, add_generation_prompt=False)
            else:
                body = "".join(f"[{each['role']}]\n{each['content']}\n[/{each['role']}]\n" for each in messages)
                assert text.endswith(body)
            # The text has its beginning once, and the server puts no other in front.
            ids = [
                states[0].get_meta_info("a")["prompt_tokens"],
                len(tokenizer.encode(text.partition("there")[0], add_bos=True)),
            ]
            assert ids[0] == ids[1]
    finally:
        if other is not None:
            other.shutdown()


class Item(BaseModel):
    kind: Literal["leaf", "branch"]
    sizes: Annotated[list[int], Field(max_length=3)]
    note: str | None = None
    children: list["Item"] = []


ITEM = '{"kind": "branch", "sizes": [1, 2], "note": null, "children": [{"kind": "leaf", "sizes": [], "children": []}]}'
SCHEMA = Item.model_json_schema()


def test_c16_a_recursive_model_comes_back_whole_or_as_truncated():
    @sgl.function
    def program(s, limit, **constraint):
        s += "As JSON: " + sgl.gen("x", max_tokens=limit, **constraint)

    backend = sgl.ScriptedBackend(ITEM)
    whole = program.run(1000, type=Item, backend=backend)
    assert whole["x"] == Item.model_validate_json(ITEM)
    assert whole.get("x", str) == ITEM
    for schema in (Item, SCHEMA, json.dumps(SCHEMA)):
        state = program.run(1000, json_schema=schema, backend=backend)
        assert state["x"] == ITEM
        assert state.get("x", Item) == whole["x"]
    # What refers to itself goes to the server as it is.
    assert '"$ref": "#/$defs/Item"' in backend.model.calls[-1].sampling["json_schema"]
    cut = program.run(5, type=Item, backend=backend)
    with pytest.raises(sgl.TruncatedError, match="was cut after 5 tokens"):
        cut["x"]
    assert cut.get_meta_info("x")["finish_reason"] == {"type": "length", "length": 5}
    with pytest.raises(sgl.ArgumentError, match=r"json_schema\.properties\.a\.type is 'objekt'"):
        sgl.gen("x", json_schema={"properties": {"a": {"type": "objekt"}}})
