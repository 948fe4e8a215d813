"""Tests of known defects of frontends of this kind that are not the subject of another module.

Rows of A9: failures.  Rows of C: pain points, by number.  A2 to A7: defects of the parts.  test_defect_map.py says where
every row has its test.
"""

import asyncio
import re
import threading

import pytest

import sgl
from sgl.backends.scripted import Gate

pytestmark = [pytest.mark.timeout(20), pytest.mark.usefixtures("no_thread_left")]


def forced(name, value):
    return sgl.gen(name, regex=re.escape(value))


def broken(call):
    raise ConnectionResetError("the wire is cut")


@sgl.function
def going_on(s):
    s += "p" + sgl.gen("x")
    s += "more" + sgl.gen("y")


# A9: how failure surfaces.


def test_a9_row_1_a_server_error_is_the_error_of_the_variable_and_no_warning():
    state = going_on.run(backend=sgl.ScriptedBackend(broken))
    with pytest.raises(sgl.ProgramError, match=r"gen 'x' at .*: ConnectionResetError: the wire is cut"):
        state["x"]


def test_a9_row_2_nothing_hangs_after_a_failure():
    state = going_on.run(backend=sgl.ScriptedBackend(broken))
    for read in (lambda: state["y"], state.text, state.sync, state.messages):
        with pytest.raises(sgl.ProgramError):
            read()
    assert state.error() is not None
    assert going_on.run_batch([(), ()], backend=sgl.ScriptedBackend(broken), on_error="collect")[1].index == 1


def test_a9_row_3_a_stream_that_fails_raises():
    state = going_on.run(stream=True, backend=sgl.ScriptedBackend(broken))
    with pytest.raises(sgl.ProgramError, match="the wire is cut"):
        list(state.text_iter())


def test_a9_row_4_one_body_that_raises_leaves_the_other_results():
    @sgl.function
    def some(s, n):
        s += "p" + forced("x", str(n))
        if n == 1:
            raise LookupError(n)

    results = some.run_batch([(n,) for n in range(3)], backend=sgl.ScriptedBackend(), on_error="collect")
    assert [results[0]["x"], type(results[1].error), results[2]["x"]] == ["0", LookupError, "2"]


def test_a9_row_5_a_backend_failure_in_a_batch_is_raised():
    with pytest.raises(sgl.ProgramError, match="the wire is cut"):
        going_on.run_batch([(), ()], backend=sgl.ScriptedBackend(broken))


def test_a9_row_6_a_role_is_left_when_its_block_raises():
    @sgl.function
    def program(s):
        with pytest.raises(LookupError), s.user():
            raise LookupError
        s += sgl.assistant("fine")

    assert program.run(backend=sgl.ScriptedBackend()).messages()[1]["content"] == "fine"


def test_a9_row_7_a_missing_backend_is_a_clear_error():
    code = []

    def in_a_new_process():
        import subprocess
        import sys

        script = (
            "import sgl\n@sgl.function\ndef p(s): s += 'x'\ntry: p.run()\nexcept sgl.SglError as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        code.append(done.stdout)

    in_a_new_process()
    assert code == ["no backend: call sgl.set_default_backend(...), or pass backend=... to run\n"]


def test_a9_the_last_piece_of_a_stream_is_never_lost():
    backend = sgl.ScriptedBackend()

    @sgl.function
    def quick(s):
        s += "p" + forced("x", "ab")

    for _ in range(200):
        assert "".join(quick.run(stream=True, backend=backend).text_iter("x")) == "ab"


def test_a9_a_waiting_async_iterator_leaves_the_loop_to_others():
    gate = Gate()

    @sgl.function
    def late(s):
        s += "p" + sgl.gen("x")

    async def main():
        state = late.run(stream=True, backend=sgl.ScriptedBackend("a", before=lambda call: gate))

        async def read():
            return [piece async for piece in state.text_async_iter("x")]

        reader = asyncio.ensure_future(read())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not reader.done()
        gate.open()
        return await reader

    assert asyncio.run(main()) == ["a"]


# A2 to A7: defects of the parts.


def test_a2_choices_that_are_an_empty_list_are_no_free_generation():
    with pytest.raises(sgl.ArgumentError, match=r"choices is \[\]"):
        sgl.gen("x", choices=[])


def test_a3_a_bound_value_gives_way_to_that_of_the_call():
    @sgl.function
    def program(s, a):
        s += a

    assert program.bind(a="bound").run(a="given", backend=sgl.ScriptedBackend()).text() == "given"


def test_a3_a_body_that_looks_its_argument_up_runs_in_a_batch():
    @sgl.function
    def program(s, key):
        s += {"one": "1", "two": "2"}[key]

    states = program.run_batch([("one",), ("two",), {"key": "one"}], backend=sgl.ScriptedBackend())
    assert [state.text() for state in states] == ["1", "2", "1"]


def test_a3_a_program_called_from_another_thread_during_a_trace_runs():
    backend = sgl.ScriptedBackend()
    texts = []

    @sgl.function
    def inner(s):
        s += "p" + forced("x", "ran")

    @sgl.function
    def outer(s):
        thread = threading.Thread(target=lambda: texts.append(inner.run(backend=backend).text()))
        thread.start()
        thread.join(5.0)
        s += "q"

    assert str(outer.trace()) == "text 'q'"
    assert texts == ["pran"]


def test_a4_inline_execution_holds_for_forks():
    @sgl.function
    def program(s):
        s += "p"
        (branch,) = s.fork(1)
        branch += forced("x", "y")
        assert "x" in branch

    program.run(use_thread=False, backend=sgl.ScriptedBackend())


def test_a4_forks_need_no_threads():
    before = threading.active_count()
    gate = Gate()

    @sgl.function
    def program(s):
        s += "p"
        forks = s.fork(64)
        forks += sgl.gen("x")
        s["threads"] = threading.active_count()
        gate.open()
        forks.join()

    state = program.run(backend=sgl.ScriptedBackend("y", before=lambda call: gate if call.index else None))
    assert state["threads"] <= before + 1


def test_a6_a_variable_set_in_one_branch_keeps_its_place_and_failures_are_seen():
    @sgl.function
    def program(s, on_error):
        s += "p"
        forks = s.fork(3)
        forks[1] += sgl.gen("v", max_tokens=0) + sgl.gen("fails")
        forks[2] += forced("v", "two")
        forks.join(on_error=on_error)

    def answer(call):
        raise sgl.BackendError("broken")

    with pytest.raises(sgl.ProgramError, match="broken"):
        program.run("raise", backend=sgl.ScriptedBackend(answer))
    state = program.run("collect", backend=sgl.ScriptedBackend(answer))
    assert state["v"][0] is None
    assert state["v"][2] == "two"
    assert isinstance(state["fails"][1], sgl.ProgramError)


def test_a6_a_group_takes_a_plain_string():
    @sgl.function
    def program(s):
        s += "p"
        forks = s.fork(3)
        forks += " same"
        forks += [" a", " b", " c"]
        return [branch.text() for branch in forks], len(forks)

    assert program.run(backend=sgl.ScriptedBackend()).ret_value == (["p same a", "p same b", "p same c"], 3)


def test_a6_a_second_round_replaces_the_list_of_the_first():
    @sgl.function
    def program(s):
        s += "p"
        for number in range(2):
            forks = s.fork(2)
            forks += lambda index, number=number: forced("v", f"{number}{index}")
            forks.join()

    assert program.run(backend=sgl.ScriptedBackend())["v"] == ["10", "11"]


def test_a7_messages_are_kept_as_written():
    @sgl.function
    def program(s):
        s += sgl.user("\n  indented\n") + sgl.assistant(" " + forced("x", " y "))

    state = program.run(backend=sgl.ScriptedBackend())
    assert [message["content"] for message in state.messages()] == ["\n  indented\n", "  y "]


def test_a9_a_stop_that_is_a_string_goes_with_a_dtype():
    @sgl.function
    def program(s):
        s += "p" + sgl.gen("x", dtype=int, stop="9")

    backend = sgl.ScriptedBackend("1239")
    assert program.run(backend=backend)["x"] == "123"
    assert backend.model.calls[0].sampling["stop"] == ["9", " ", "\n"]


# C: pain points.


def test_c5_forking_before_any_text_and_racing_with_the_parent():
    @sgl.function
    def program(s):
        branch = s.fork(1)[0]
        s += "parent"
        branch += "child" + forced("x", "y")
        return branch.text()

    state = program.run(backend=sgl.ScriptedBackend())
    assert (state.text(), state.ret_value) == ("parent", "childy")


def test_c7_text_that_is_rendered_already_is_sent_once_and_then_as_ids():
    @sgl.function
    def program(s):
        s += "<s>Hello" + forced("x", "!") + " again" + forced("y", "?")

    backend = sgl.ScriptedBackend()
    program.run(backend=backend).sync()
    assert [call.prompt.count("<s>") for call in backend.model.calls] == [1, 1]
    assert bytes(backend.model.calls[1].payload["input_ids"]).decode() == "<s>Hello!"


def test_c8_what_the_default_limit_cut_says_so(caplog):
    @sgl.function
    def program(s):
        s += "p" + sgl.gen("x")

    state = program.run(backend=sgl.ScriptedBackend("long " * 100))
    assert state.get_meta_info("x")["finish_reason"]["type"] == "length"
    assert "was cut at the default of 128 tokens" in caplog.text


def test_c10_an_empty_regex_is_refused_where_the_gen_is_built():
    with pytest.raises(sgl.ArgumentError, match="regex is ''"):
        sgl.gen("x", regex="")


def test_c17_c19_unknown_parameters_are_rejected_by_name():
    with pytest.raises(TypeError, match="top_kk"):
        sgl.gen("x", top_kk=1)
    with pytest.raises(TypeError, match="'top_kk', which is neither a parameter of the program"):
        going_on.run(top_kk=1)


def test_c22_an_unknown_name_lists_the_known_ones():
    state = going_on.run(backend=sgl.ScriptedBackend("a"))
    with pytest.raises(sgl.UnknownVariableError, match="no variable 'z' at this point; known: 'x', 'y'"):
        state.get_meta_info("z")


def test_c28_a_batch_runs_its_items_at_the_same_time():
    both = threading.Barrier(2, timeout=5.0)

    @sgl.function
    def program(s):
        both.wait()
        s += "p"

    program.run_batch([(), ()], num_threads=2, backend=sgl.ScriptedBackend())


def test_c30_a_pick_is_scored_over_the_tokens_that_free_generation_would_use():
    from sgl.backends.scripted_tokenizer import WordTokenizer

    @sgl.function
    def program(s):
        s += "Go in" + sgl.select("x", ["side", "to"])

    state = program.run(backend=sgl.ScriptedBackend(tokenizer=WordTokenizer()))
    tokens = [[token[2] for token in item] for item in state.get_meta_info("x")["input_token_logprobs"]]
    assert tokens == [[" inside"], [" into"]]
