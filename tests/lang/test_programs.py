"""What a program's text, variables and meta info come to (C01, C02, C16 in part)."""

import re
import threading

import pytest

import sgl
from sgl.backends.scripted import Gate

pytestmark = pytest.mark.timeout(20)


def forced(name: str, value: str) -> sgl.ir.Gen:
    return sgl.gen(name, regex=re.escape(value))


@sgl.function
def chain(s):
    s += "Begin "
    s += forced("a", "A1") + " then " + forced("b", "B-2")
    s += " and " + forced("c", "é3")
    s += sgl.select("d", ["!only"])


def test_text_is_the_concatenation_and_every_variable_is_exact():
    state = chain.run(backend=sgl.ScriptedBackend())
    assert state.text() == "Begin A1 then B-2 and é3!only"
    assert [state[name] for name in state.variables()] == ["A1", "B-2", "é3", "!only"]
    assert state.variables() == ["a", "b", "c", "d"]


def test_meta_info_has_finish_reason_and_counts():
    state = chain.run(backend=sgl.ScriptedBackend())
    metas = [state.get_meta_info(name) for name in "abc"]
    assert all(meta["finish_reason"] == {"type": "stop", "matched": None} for meta in metas)
    assert sum(meta["completion_tokens"] for meta in metas) >= 3
    assert metas[1]["cached_tokens"] >= metas[0]["prompt_tokens"]


def test_ids_cross_the_border_and_text_is_sent_once():
    backend = sgl.ScriptedBackend()
    chain.run(backend=backend).sync()
    first, second = backend.model.calls[:2]
    assert first.payload["text"] == "Begin "
    assert "input_ids" not in first.payload
    assert second.payload["text"] == " then "
    assert bytes(second.payload["input_ids"]).decode() == "Begin A1"


def test_a_program_of_constants_makes_no_call():
    @sgl.function
    def constants(s):
        s += "a"
        s += "" + sgl.ir.Text("b")
        return len("ab")

    backend = sgl.ScriptedBackend()
    state = constants(backend=backend)
    assert (state.text(), state.ret_value, backend.model.calls) == ("ab", 2, [])


def test_body_returns_before_generation_ends_and_reading_waits():
    gate = Gate()
    backend = sgl.ScriptedBackend("slow", before=lambda call: gate if call.prompt == "one" else None)

    @sgl.function
    def slow(s, text):
        s += text
        s += sgl.gen("x")
        s += " end"

    one = slow.run("one", backend=backend)
    two = slow.run("two", backend=backend)
    assert two["x"] == "slow"
    assert "x" not in one
    assert one.text(partial=True) == "one"
    gate.open()
    assert one["x"] == "slow"
    assert "x" in one
    assert one.text() == "oneslow end"


def test_unknown_variable_names_those_known():
    state = chain.run(backend=sgl.ScriptedBackend())
    with pytest.raises(sgl.UnknownVariableError, match=r"no variable 'x' at this point; known: 'a', 'b', 'c', 'd'"):
        state["x"]
    with pytest.raises(KeyError):
        state.get_meta_info("x")


def test_variables_can_be_set_and_read_at_once():
    @sgl.function
    def setting(s):
        s["n"] = [1, 2]
        s += "n is " + str(s["n"])

    state = setting.run(backend=sgl.ScriptedBackend())
    assert state["n"] == [1, 2]
    assert state.text() == "n is [1, 2]"
    assert state.get_meta_info("n") == {}


def test_gen_without_text_says_what_is_missing():
    @sgl.function
    def empty(s):
        s += sgl.gen("x")

    state = empty.run(backend=sgl.ScriptedBackend())
    with pytest.raises(
        sgl.ProgramError, match=r"'empty' failed in gen 'x' at .*test_programs.py:\d+: there is nothing"
    ):
        state["x"]


def test_inline_execution_raises_where_it_fails():
    reached = []

    @sgl.function
    def inline(s):
        s += "p" + sgl.gen("a", regex="ok")
        reached.append("a" in s)
        s += sgl.gen("b")
        reached.append("never")

    with pytest.raises(sgl.ProgramError, match="gen 'b'"):
        inline.run(backend=sgl.ScriptedBackend([]), use_thread=False)
    assert reached == [True]


def test_default_backend_is_found_from_a_new_thread():

    from sgl.default_backend import resolve_backend

    backend = sgl.ScriptedBackend()
    sgl.set_default_backend(backend)
    found = []
    thread = threading.Thread(target=lambda: found.append(resolve_backend(None)))
    thread.start()
    thread.join()
    assert found == [backend]


def test_cache_can_be_flushed_and_counted():
    backend = sgl.ScriptedBackend()
    assert chain.run(backend=backend).get_meta_info("a")["cached_tokens"] == 0
    assert chain.run(backend=backend).get_meta_info("a")["cached_tokens"] > 0
    assert sgl.flush_cache(backend) is True
    assert chain.run(backend=backend).get_meta_info("a")["cached_tokens"] == 0
    assert sgl.get_server_info(backend)["num_calls"] == len(backend.model.calls)


@pytest.mark.parametrize(
    ("dtype", "answer", "value"),
    [
        (int, "42 apples", "42"),
        ("float", "2.5\n", "2.5"),
        (bool, "True", "True"),
        (str, '"a b"', '"a b"'),
    ],
)
def test_dtype_is_a_constraint_and_the_value_stays_text(dtype, answer, value):
    @sgl.function
    def typed(s):
        s += "x" + sgl.gen("v", dtype=dtype, stop=["apples"])

    backend = sgl.ScriptedBackend(answer if answer != "42 apples" else "42 ")
    assert typed.run(backend=backend)["v"] == value


def test_schema_is_taken_as_dict_text_or_model():
    import json

    from pydantic import BaseModel

    class Pet(BaseModel):
        name: str
        age: int

    sent = []
    for schema in (Pet, Pet.model_json_schema(), json.dumps(Pet.model_json_schema())):
        backend = sgl.ScriptedBackend('{"name": "x", "age": 1}')

        @sgl.function
        def pets(s, schema=schema):
            s += "p" + sgl.gen("x", json_schema=schema)

        assert pets.run(backend=backend)["x"] == '{"name": "x", "age": 1}'
        sent.append(json.loads(backend.model.calls[0].sampling["json_schema"]))
    assert sent[0] == sent[1] == sent[2]
