"""What gens can ask for of the server: several outputs, stop regexes (C13), log probabilities, priorities."""

import itertools
import math

import pytest

import sgl

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=["scripted", pytest.param("engine", marks=pytest.mark.model)])
def backend(request):
    return (
        sgl.ScriptedBackend(["no answer"]) if request.param == "scripted" else request.getfixturevalue("small_engine")
    )


def test_several_outputs_are_a_list_and_the_state_goes_on_with_the_first():
    @sgl.function
    def program(s):
        s += "p:" + sgl.gen("x", n=3, stop=";") + "|" + sgl.gen("y")

    backend = sgl.ScriptedBackend(["one;", "two;", "three", "end"])
    state = program.run(backend=backend)
    assert state["x"] == ["one", "two", "three"]
    assert state.text() == "p:one|end"
    meta = state.get_meta_info("x")
    assert [sample["finish_reason"]["matched"] for sample in meta["samples"]] == [";", ";", 256]
    assert meta["completion_tokens"] == 4 + 4 + 6
    assert state.usage().completion_tokens == 14 + 4
    assert backend.model.calls[-1].payload["input_ids"] == list(b"p:one")


def test_each_output_is_read_as_the_gen_says():
    @sgl.function
    def program(s):
        s += "p:" + sgl.gen("x", n=2, type=int, post=lambda value: value * 10) + sgl.gen("y", n=1)

    state = program.run(backend=sgl.ScriptedBackend(["4", "2", "z"]))
    assert (state["x"], state["y"]) == ([40, 20], "z")


def test_run_may_say_how_many_and_tools_refuse_it():
    def ask(question: str) -> str:
        """Ask."""
        return question

    @sgl.function
    def program(s):
        s += "p:" + sgl.gen("x")

    @sgl.function
    def with_tools(s):
        s += "p:" + sgl.gen("x", tools=[ask])

    assert program.run(n=2, backend=sgl.ScriptedBackend(["a", "b"]))["x"] == ["a", "b"]
    with pytest.raises(sgl.SglError, match="the run sets n = 2, but a gen with tools has one output"):
        with_tools.run(n=2, backend=sgl.ScriptedBackend("a"))["x"]


@pytest.mark.parametrize("name", ["x", None])
def test_a_stream_of_several_outputs_shows_the_first(name):
    @sgl.function
    def program(s):
        s += "p:" + sgl.gen("x", n=2) + "!"

    state = program.run(stream=True, backend=sgl.ScriptedBackend(["first", "second"]))
    pieces = list(state.text_iter(name))
    assert "".join(pieces) == ("first" if name else "p:first!")
    assert state["x"] == ["first", "second"]


@pytest.mark.model
def test_several_outputs_share_their_prompt_and_repeat_with_a_seed(small_engine):
    @sgl.function
    def program(s):
        s += "Once upon a time there was a small village where" + sgl.gen("x", n=3, max_tokens=6, ignore_eos=True)

    sgl.flush_cache(small_engine)
    first, again, other = (program.run(seed=seed, backend=small_engine) for seed in (7, 7, 8))
    samples = first.get_meta_info("x")["samples"]
    assert [sample["cached_tokens"] for sample in samples] == [0] + [samples[0]["prompt_tokens"] - 1] * 2
    assert first["x"] == again["x"]
    assert len({*first["x"], *other["x"]}) >= 5
    streamed = program.run(seed=7, stream=True, backend=small_engine)
    assert "".join(streamed.text_iter("x")) == first["x"][0]
    assert streamed["x"] == first["x"]


@sgl.function
def stopping(s, text, **options):
    s += "p:" + sgl.gen("x", regex=text, max_tokens=60, **options) + "|"


STOPS = [
    ({"stop": "END"}, "foo ", "END"),
    ({"stop": ["bar", "END"]}, "foo ", "END"),
    ({"stop": ("EN", "END")}, "foo ", None),
    ({"stop_regex": "E[A-Z]D"}, "foo ", "END"),
    ({"stop_regex": ["b.r", "o+ E"]}, "f", "oo E"),
    ({"stop": "D", "stop_regex": "N"}, "foo E", "N"),
    ({"stop_regex": "[fo]+ "}, "", "foo "),
    ({"stop_regex": ["ba", " b"]}, "foo END", " b"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("options", "text", "matched"), STOPS)
def test_c13_stops_cut_the_output_and_never_show(backend, options, text, matched, stream):
    state = stopping.run("foo END bar", **options, stream=stream, backend=backend)
    if stream:
        pieces = list(state.text_iter("x"))
        assert "".join(pieces) == text
        assert all(text.startswith(so_far) for so_far in itertools.accumulate(pieces))
    assert (state["x"], state.text()) == (text, f"p:{text}|")
    reason = state.get_meta_info("x")["finish_reason"]
    assert reason["type"] == "stop"
    # Which of two stops comes first, where one begins the other, depends on where tokens end.
    assert reason["matched"] in ((matched,) if matched else ("EN", "END"))
    assert reason.get("regex") == next(
        (r for r in _list(options.get("stop_regex")) if reason["matched"] in _ONE[r]), None
    )


_ONE = {"E[A-Z]D": ["END"], "b.r": [], "o+ E": ["oo E"], "N": ["N"], "[fo]+ ": ["foo "], "ba": ["ba"], " b": [" b"]}


def _list(value):
    return [] if value is None else [value] if isinstance(value, str) else value


def test_a_stop_inside_a_constrained_output_wins(backend):
    """The rule for a grammar and a stop: the stop ends the output, which then need not be complete."""
    state = stopping.run('\\{"a": "x, y"\\}', stop_regex=",", backend=backend)
    assert state["x"] == '{"a": "x'
    assert state.get_meta_info("x")["finish_reason"]["matched"] == ","


@pytest.mark.model
def test_a_stop_regex_that_only_the_server_can_refuse_fails_the_state(small_engine):
    @sgl.function
    def program(s):
        s += "p" + sgl.gen("x", stop_regex=r"\bEND")

    with pytest.raises(sgl.ProgramError, match="must not ask for what stands around its match"):
        program.run(backend=small_engine)["x"]


def test_log_probabilities_of_all_kinds_are_in_the_meta_info():
    @sgl.function
    def program(s):
        s += "ab" + sgl.gen("x", top_logprobs_num=2, token_ids_logprob=[ord("z")], logprob_start_len=1)
        s += sgl.gen("y", return_logprob=True, return_text_in_logprobs=False)
        s += sgl.gen("z", logprob_start_len=-1, top_logprobs_num=0)

    backend = sgl.ScriptedBackend("cd", logprob=lambda context, token: -1.0 if token in "cd" else -3.0)
    state = program.run(backend=backend)
    state.sync()
    meta = state.get_meta_info("x")
    assert meta["input_token_logprobs"] == [[-3.0, ord("b"), "b"]]
    assert meta["output_top_logprobs"][0] == [[-1.0, ord("c"), "c"], [-1.0, ord("d"), "d"]]
    assert meta["output_token_ids_logprobs"][0] == [[-3.0, ord("z"), "z"]]
    assert backend.model.calls[1].payload["return_text_in_logprobs"] is False
    assert not {"return_logprob", "top_logprobs_num", "logprob_start_len"} & backend.model.calls[2].payload.keys()


@pytest.mark.model
def test_log_probabilities_of_the_real_model_are_the_same_whatever_is_cached(small_engine):
    @sgl.function
    def program(s):
        s += "The capital of France is the city of" + sgl.gen(
            "x", temperature=0.0, max_tokens=3, top_logprobs_num=5, token_ids_logprob=[100, 200], logprob_start_len=4
        )

    sgl.flush_cache(small_engine)
    cold, warm = (program.run(backend=small_engine).get_meta_info("x") for _ in range(2))
    assert (cold["cached_tokens"], warm["cached_tokens"]) == (0, 3)
    for side in ("input", "output"):
        for kind in ("token_logprobs", "top_logprobs", "token_ids_logprobs"):
            one, two = cold[f"{side}_{kind}"], warm[f"{side}_{kind}"]
            assert len(one) == len(two) == len(cold[f"{side}_token_logprobs"])
            for place, again in zip(one, two, strict=True):
                entries, others = ([each] if kind == "token_logprobs" else each for each in (place, again))
                assert [entry[0] for entry in entries] == pytest.approx([entry[0] for entry in others], abs=1e-3)
                assert [entry[1] for entry in entries] == [entry[1] for entry in others]
    for chosen, top in zip(cold["output_token_logprobs"], cold["output_top_logprobs"], strict=True):
        assert top[0][:2] == pytest.approx(chosen[:2], abs=1e-4)
        assert [entry[0] for entry in top] == sorted((entry[0] for entry in top), reverse=True)
        assert math.fsum(math.exp(entry[0]) for entry in top) <= 1.0


def test_priority_is_sent_and_adapters_are_refused_where_the_program_asks_for_one():
    @sgl.function
    def program(s, lora):
        s += "p" + sgl.gen("x", priority=-1) + sgl.gen("y")
        s += sgl.gen("z", lora_path=lora)

    backend = sgl.ScriptedBackend("a")
    program.run(None, priority=3, backend=backend).sync()
    assert [call.payload["priority"] for call in backend.model.calls] == [-1, 3, 3]
    with pytest.raises(sgl.UnsupportedError, match="gen 'z' sets lora_path, which the scripted backend does not take"):
        program.run("adapter", backend=backend)
    with pytest.raises(sgl.UnsupportedError, match="lora_path, which the scripted backend does not take"):
        program.run(None, lora_path="adapter", backend=backend)


@pytest.mark.parametrize(("kind", "value"), [("ebnf", 'root ::= "a"'), ("structural_tag", {"structures": []})])
def test_grammars_are_sent_as_they_are_given(kind, value):
    @sgl.function
    def program(s):
        s += "p" + sgl.gen("x", **{kind: value})

    backend = sgl.ScriptedBackend("a")
    assert program.run(backend=backend)["x"] == "a"
    sent = backend.model.calls[0].sampling[kind]
    assert sent == (value if kind == "ebnf" else '{"structures": []}')
