"""Parameters: precedence, checks where an expression is built, names of program arguments (C14)."""

import inspect
import json
from typing import get_args

import pytest
from msgspec import structs

import sgl
from sgl.constraints import ConstraintKind
from sgl.sampling import REQUEST_FIELDS, RUN_DEFAULTS, SAMPLING_FIELDS, check_sampling
from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.sampling_params import GRAMMAR_KINDS
from sgl_runtime.sampling_params import SamplingParams as ServerParams
from sgl_runtime.server.generate_request import FIELDS as SERVER_FIELDS
from sgl_runtime.server.generate_request import parse_generate

pytestmark = pytest.mark.timeout(20)


def sent(program, *args, **kwargs):
    backend = sgl.ScriptedBackend("x")
    program.run(*args, backend=backend, **kwargs).sync()
    return [call.sampling for call in backend.model.calls]


def test_a_gen_wins_over_run_which_wins_over_the_defaults():
    @sgl.function
    def program(s):
        s += "p" + sgl.gen("a") + sgl.gen("b", temperature=0.0, stop=[], max_tokens=3, top_k=5, min_p=0.1)

    first, second = sent(program, temperature=0.5, stop=["s"], top_p=0.9, stop_token_ids=[3], ignore_eos=False)
    assert first == {
        "n": 1, "max_new_tokens": 128, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.0, "stop": ["s"],
        "stop_token_ids": [3], "ignore_eos": False,
    }  # fmt: skip
    assert second == {**first, "temperature": 0.0, "stop": [], "max_new_tokens": 3, "top_k": 5, "min_p": 0.1}


def test_effective_parameters_are_in_the_meta_info():
    @sgl.function
    def program(s):
        s += "p" + sgl.gen("a", max_tokens=7)

    meta = program.run(temperature=0.25, backend=sgl.ScriptedBackend("x")).get_meta_info("a")
    assert meta["sampling_params"]["max_new_tokens"] == 7
    assert meta["sampling_params"]["temperature"] == 0.25


def test_the_callers_lists_stay_as_they_are():
    stop, ids = ["END"], [5]

    @sgl.function
    def program(s):
        s += "p"
        for number in range(5):
            s += sgl.gen(f"v{number}", stop=stop, stop_token_ids=ids)
        s += sgl.gen("n", dtype="int", stop=stop)

    assert [item["stop"] for item in sent_with(program, "7")] == [["END"]] * 5 + [["END", " ", "\n"]]
    assert (stop, ids) == (["END"], [5])


def sent_with(program, answer):
    backend = sgl.ScriptedBackend(answer)
    program.run(backend=backend).sync()
    return [call.sampling for call in backend.model.calls]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1}, r"temperature is -1; it must be a number from 0 to 100"),
        ({"temperature": True}, "temperature is True"),
        ({"max_tokens": 1.5}, r"max_tokens is 1\.5; it must be an integer"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"top_p": 0}, "top_p is 0; it must be a number above 0"),
        ({"top_k": 0}, "top_k is 0"),
        ({"min_p": 2}, "min_p is 2"),
        ({"seed": -1}, "seed is -1"),
        ({"min_tokens": -1}, "min_tokens is -1"),
        ({"frequency_penalty": 3}, "frequency_penalty is 3; it must be a number from -2 to 2"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0"),
        ({"logit_bias": [1]}, r"logit_bias is \[1\]; it must be a dict of token ids"),
        ({"logit_bias": {5: 101}}, r"logit_bias\[5\] is 101"),
        ({"logit_bias": {"a": 1}}, r"logit_bias\['a'\] is 1"),
        ({"stop": [""]}, "stop is "),
        ({"stop": [1]}, "stop is "),
        ({"n": 0}, "n is 0; it must be an integer from 1 to 128"),
        ({"stop_regex": [""]}, "stop_regex is "),
        ({"stop_regex": "(a"}, r"stop_regex '\(a' is malformed at position 0"),
        ({"stop_regex": ["b", r"(a)\1"]}, r"stop_regex '\(a\)\\\\1' refers back to a group at position 3"),
        ({"stop_regex": "a*"}, r"stop_regex 'a\*' matches the empty text"),
        ({"stop_regex": ["a"] * 9}, "at most 8 regexes"),
        ({"logprob_start_len": -2}, "logprob_start_len is -2"),
        ({"top_logprobs_num": 101}, "top_logprobs_num is 101; it must be an integer from 0 to 100"),
        ({"token_ids_logprob": ["a"]}, "token_ids_logprob is "),
        ({"return_text_in_logprobs": 1}, "return_text_in_logprobs is 1"),
        ({"priority": 0.5}, r"priority is 0\.5"),
        ({"lora_path": ""}, "lora_path is ''"),
        ({"extra_key": 3}, "extra_key is 3"),
        ({"return_hidden_states": 1}, "return_hidden_states is 1"),
        ({"custom_params": [1]}, r"custom_params is \[1\]"),
        ({"custom_params": {"a": {1}}}, "custom_params cannot be written as JSON"),
        ({"ebnf": ""}, "ebnf is ''"),
        ({"structural_tag": "["}, "structural_tag is not JSON"),
        ({"structural_tag": []}, r"structural_tag is \[\]; it must be a dict"),
        ({"ebnf": "root ::= x", "regex": "a"}, "regex and ebnf"),
        ({"tools": [sgl.flush_cache], "n": 2}, "tools and n = 2; a gen with tools has one output"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids is "),
        ({"ignore_eos": 1}, "ignore_eos is 1"),
        ({"name": 3}, "name is 3"),
        ({"regex": ""}, "regex is ''"),
        ({"regex": "a(b"}, r"regex 'a\(b' is malformed at position 1"),
        ({"json_schema": "{"}, "json_schema is not JSON: .* at line 1 column 2"),
        ({"json_schema": "[]"}, "json_schema is "),
        ({"json_schema": int}, "json_schema is <class 'int'>"),
        ({"json_schema": {"a": object()}}, "json_schema cannot be written as JSON"),
        ({"dtype": list}, "dtype is "),
        ({"dtype": []}, "dtype is "),
        ({"regex": "a", "json_schema": {}}, "regex and json_schema"),
        ({"regex": "a", "dtype": int}, "dtype and regex"),
        ({"choices_method": sgl.greedy_token_selection}, "choices_method is given without choices"),
    ],
)
def test_wrong_values_raise_where_the_gen_is_built(arguments, message):
    with pytest.raises(sgl.ArgumentError, match=message):
        sgl.gen(**arguments)


def test_unknown_options_are_named():
    with pytest.raises(TypeError, match="temprature"):
        sgl.gen("x", temprature=1.0)
    with pytest.raises(TypeError, match="regex"):
        sgl.gen_int("x", regex="a")

    @sgl.function
    def program(s, a):
        s += "p"

    with pytest.raises(TypeError, match=r"'temprature', which is neither a parameter of the program \(a\) nor a run"):
        program.run(1, temprature=1.0)
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        program.run(temperature=1.0)
    with pytest.raises(sgl.ArgumentError, match="temperature is 'hot'"):
        program.run(1, temperature="hot")
    with pytest.raises(sgl.ArgumentError, match="stream is 1"):
        program.run(1, stream=1)


def test_program_parameters_may_have_the_names_of_options():
    @sgl.function
    def program(s, n, stop=None, stream=False, temperature=None, backend=None):
        s += f"{n} {stop} {stream} {temperature} {backend}" + sgl.gen("x")

    backend = sgl.ScriptedBackend("")
    ready = program.options(backend=backend, temperature=0.25)
    arguments = {"n": 9, "stop": "s", "stream": True, "temperature": "warm", "backend": "mine"}
    assert ready.run(**arguments).text() == "9 s True warm mine"
    assert ready.run_batch([arguments])[0].text() == "9 s True warm mine"
    assert {call.sampling["temperature"] for call in backend.model.calls} == {0.25}


def test_bind_gives_arguments_that_a_call_may_replace():
    @sgl.function
    def program(s, a, b="b", *rest, c="c", **more):
        s += f"{a}{b}{rest}{c}{more}"

    backend = sgl.ScriptedBackend()
    bound = program.bind(a="A", c="C").options(backend=backend)
    assert bound.run().text() == "Ab()C{}"
    assert bound.run(c="D").text() == "Ab()D{}"
    assert bound.run("X").text() == "Xb()C{}"
    assert program.run(1, 2, 3, d=4, temperature=0.5, backend=backend).text() == "12(3,)c{'d': 4}"

    @sgl.function()
    def strict(s, a):
        s += a

    with pytest.raises(TypeError, match="unexpected keyword argument 'b'"):
        strict.bind(b=1)


def test_a_program_needs_a_state():
    with pytest.raises(sgl.ArgumentError, match="'stateless' needs a first parameter"):

        @sgl.function
        def stateless():
            pass


def test_the_default_limit_is_said_once_when_it_cuts(caplog):
    @sgl.function
    def program(s):
        s += "p" + sgl.gen("x") + sgl.gen("y")

    state = program.run(backend=sgl.ScriptedBackend("long " * 100))
    assert state.get_meta_info("y")["finish_reason"] == {"type": "length", "length": RUN_DEFAULTS.max_new_tokens}
    assert [record.getMessage()[:45] for record in caplog.records] == ["program program: gen 'x' (" + __file__[:19]]
    program.run(max_new_tokens=2, backend=sgl.ScriptedBackend("long " * 100)).sync()
    assert len(caplog.records) == 1


def test_log_probabilities_come_when_asked_for():
    @sgl.function
    def program(s):
        s += "p" + sgl.gen("x", return_logprob=True) + sgl.gen("y")

    state = program.run(backend=sgl.ScriptedBackend("ab"))
    assert [entry[2] for entry in state.get_meta_info("x")["output_token_logprobs"]] == ["a", "b", ""]
    assert "output_token_logprobs" not in state.get_meta_info("y")


def test_every_public_name_has_a_docstring():
    for name in sgl.__all__:
        if name not in ("Engine", "__version__"):
            thing = getattr(sgl, name)
            assert inspect.getdoc(thing if callable(thing) else type(thing)), name


def test_the_language_has_the_servers_parameters_and_defaults():
    """Row 19 of table C: what the server takes can be said in a program, by one schema."""
    server = {field.name: field.default for field in structs.fields(ServerParams)}
    language = {"sampling_seed" if name == "seed" else name for name in SAMPLING_FIELDS} - set(REQUEST_FIELDS)
    # What is said otherwise: choices by select; what stays of stops would break the ids that follow.
    elsewhere = {*get_args(ConstraintKind), "choices", "no_stop_trim", "skip_special_tokens"}
    assert language | elsewhere == server.keys()
    for name, value in RUN_DEFAULTS.given().items():
        if name not in ("return_logprob", "max_new_tokens"):
            assert server[name] == value, name
    # What a request says beside its sampling_params.
    said_by_the_backend = {"text", "input_ids", "sampling_params", "rid", "stream", "return_text_ids"}
    # A state keeps its own tokens, and so needs no session; and its prompt is text, which it can be read back as.
    not_said = {"session_params", "input_embeds"}
    assert set(REQUEST_FIELDS) | said_by_the_backend | not_said == set(SERVER_FIELDS)
    assert set(get_args(ConstraintKind)) | {"choices"} == set(GRAMMAR_KINDS)


def test_fields_of_requests_arrive_at_the_server_as_they_were_said():
    said = {
        "extra_key": "a",
        "return_hidden_states": True,
        "custom_logit_processor": "name",
        "custom_params": {"x": [1, {"y": None}]},
        "priority": 2,
    }
    settings = check_sampling(said)
    payload = {"text": "a", "sampling_params": settings.to_protocol(), **settings.request_fields()}
    (request,) = parse_generate(payload).requests
    assert (request.extra_key, request.return_hidden_states, request.priority) == ("a", True, 2)
    assert request.custom_logit_processor.name == "name"
    assert json.loads(request.custom_logit_processor.params) == said["custom_params"]


@pytest.mark.parametrize(
    ("language", "server"),
    [
        ("n", 128),
        ("priority", 2**31 - 1),
        ("top_logprobs_num", 100),
        ("priority", -(2**31) + 1),
        ("stop_regex", "a" * 8),
    ],
)
def test_the_language_and_the_server_have_the_same_limits(language, server):
    highest = list(server) if isinstance(server, str) else server
    settings = check_sampling({language: highest})
    payload = {"text": "a", "sampling_params": settings.to_protocol(), **settings.request_fields()}
    assert parse_generate(payload).requests
    beyond = [*highest, "a"] if isinstance(highest, list) else highest + (1 if highest > 0 else -1)
    with pytest.raises(sgl.ArgumentError):
        check_sampling({language: beyond})
    name, fields = ("sampling_params", {language: beyond}) if language not in REQUEST_FIELDS else (language, beyond)
    with pytest.raises(InvalidRequestError):
        parse_generate({"text": "a", "return_logprob": True, name: fields})


def test_penalties_and_biases_are_sent_when_they_are_given():
    @sgl.function
    def program(s):
        s += "p" + sgl.gen("a", min_tokens=2, presence_penalty=0.5, logit_bias={5: 1, "7": -100}) + sgl.gen("b")

    first, second = sent(program, frequency_penalty=0.25, repetition_penalty=1.1)
    assert {"frequency_penalty": 0.25, "repetition_penalty": 1.1}.items() <= second.items()
    assert first == {
        **second, "min_new_tokens": 2, "presence_penalty": 0.5, "logit_bias": {"5": 1.0, "7": -100.0},
    }  # fmt: skip
