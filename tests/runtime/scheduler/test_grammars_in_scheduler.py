"""Constraints of every kind in the scheduler, and what happens when one cannot go on."""

import json

import pytest

from sgl_runtime.ipc.messages import TokenDelta, TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams

EOS = 256
CHAIN = "start: r0\n" + "\n".join(f"r{n}: r{n + 1}" for n in range(40_000)) + '\nr40000: "a"'
HOSTILE = [
    {"regex": "(?:.*[a-f]){9}(?:.*a.*b.{12}){6}"},
    {"regex": ".{1000000000}"},
    {"ebnf": CHAIN},
    {"json_schema": json.dumps({"minItems": 10**9})},
    {"json_schema": json.dumps({"anyOf": [{"properties": {f"k{n}": {"minimum": n}}} for n in range(1000)]})},
    {"json_schema": "[" * 100_000},
]


def request(rid: str, max_new: int = 40, **sampling: object) -> TokenizedRequest:
    settings = SamplingParams(max_new_tokens=max_new, temperature=0.0, **sampling)
    return TokenizedRequest(rid=rid, input_ids=[1, 2, 3], sampling=settings)


def run(bench, *requests: TokenizedRequest) -> dict[str, TokenDelta]:
    """The last delta of each request; texts are collected in `bench.texts`."""
    bench.texts = {each.rid: b"" for each in requests}
    last = {}
    for each in requests:
        bench.scheduler.accept(each)
    while bench.scheduler.has_work():
        for output in bench.scheduler.step():
            if isinstance(output, TokenDelta):
                bench.texts[output.rid] += bytes(token for token in output.new_ids if token < 256)
                last[output.rid] = output
    bench.scheduler.check()
    return last


def test_every_kind_of_constraint_ends_complete(make_bench):
    bench = make_bench()
    tag = {"structures": [{"begin": "<a>", "schema": {"type": "integer"}, "end": "</a>"}], "triggers": ["<a"]}
    last = run(
        bench,
        request("choices", choices=("one", "two")),
        request("regex", regex="[a-c]{4}"),
        request("schema", json_schema='{"enum": [12, "x"]}'),
        request("ebnf", ebnf='root ::= "x" [0-9]{3} "y"'),
        request("lark", ebnf="start: /[0-9]{5}/"),
        request("tag", structural_tag=json.dumps(tag)),
    )
    kinds = {rid: last[rid].grammar.backend for rid in last}
    assert kinds == {
        "choices": "fsm",
        "regex": "fsm",
        "schema": "fsm",
        "ebnf": "llguidance",
        "lark": "llguidance",
        "tag": "fsm",
    }
    assert {rid: last[rid].finish.type for rid in last if rid != "tag"} == dict.fromkeys(last.keys() - {"tag"}, "stop")
    assert bench.texts["choices"] in (b"one", b"two")
    assert bench.texts["ebnf"][:1] + bench.texts["ebnf"][4:] == b"xy"
    assert bench.texts["lark"].isdigit()
    assert len(bench.texts["lark"]) == 5


def test_a_lenient_request_says_what_it_relaxed(make_bench):
    bench = make_bench()
    schema = json.dumps({"type": "array", "maxItems": 2, "items": {"maxLength": 2, "type": "string"}, "extends": {}})
    last = run(
        bench, request("strict", json_schema=schema), request("lenient", json_schema=schema, json_schema_lenient=True)
    )
    assert last["strict"].finish.code == "bad_grammar"
    assert last["lenient"].grammar.relaxed == [("#/extends", "is a keyword that is not supported")]
    assert isinstance(json.loads(bench.texts["lenient"]), list)


def test_items_that_must_differ_do(make_bench):
    bench = make_bench()
    items = {"type": "string", "maxLength": 1, "pattern": "^[a-d]$"}
    schema = {"type": "array", "items": items, "uniqueItems": True, "minItems": 3, "maxItems": 3}
    last = run(bench, *(request(f"r{number}", json_schema=json.dumps(schema)) for number in range(4)))
    for rid, delta in last.items():
        assert (delta.grammar.backend, delta.finish.type) == ("fsm", "stop")
        assert len(set(json.loads(bench.texts[rid]))) == 3


def test_a_grammar_that_passes_a_limit_ends_its_request_alone(make_bench):
    bench = make_bench()
    ambiguous = f'start: e "!"\ne: {"e " * 200} | /[^!]/ |'
    last = run(bench, request("large", ebnf=ambiguous), request("free"))
    assert last["large"].grammar.backend == "llguidance"
    assert last["large"].finish.code == "bad_grammar"
    assert last["large"].finish.message.startswith("ebnf: llguidance: ")
    assert last["free"].finish.type == "length"
    assert len(bench.texts["free"]) > 20


@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_requests_go_on_while_hostile_grammars_compile(make_bench, first):
    bench = make_bench(context=400, num_slots=2000, compile_timeout=1.0)
    hostile = HOSTILE[first::2]
    for number, constraint in enumerate(hostile):
        bench.scheduler.accept(request(f"hostile{number}", **constraint))
    ends = {}
    num_tokens = num_other_steps = 0
    # Another request runs all the time, and gets a token with every step but those that begin a request.
    while len(ends.keys() - {"running"}) < len(hostile):
        if not num_tokens or "running" in ends:
            ends.pop("running", None)
            bench.scheduler.accept(request("running", max_new=300))
        outputs = [output for output in bench.scheduler.step() if isinstance(output, TokenDelta)]
        num_other_steps += not any(output.rid == "running" for output in outputs)
        num_tokens += sum(len(output.new_ids) for output in outputs if output.rid == "running")
        ends.update({output.rid: output.finish for output in outputs if output.finish is not None})
    assert num_tokens > 100
    assert num_other_steps <= len(hostile)
    assert {finish.code for finish in ends.values()} <= {"bad_grammar", None}
