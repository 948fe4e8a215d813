"""fork and join: alignment, isolation, sharing, text (C06, C07, C08 with a script, C09)."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

import sgl
from sgl.backends.scripted import Gate

pytestmark = pytest.mark.timeout(20)


def forced(name, value):
    return sgl.gen(name, regex=re.escape(value))


def test_gather_is_aligned_by_branch():
    @sgl.function
    def gathering(s):
        s += "p"
        s["old"] = "mine"
        forks = s.fork(5)
        for index, branch in enumerate(forks):
            branch += forced("v", str(index))
            if index % 2 == 0:
                branch += forced("e", f"even{index}")
        forks[3]["old"] = "theirs"
        forks.join()
        again = s.fork(2)
        again += lambda index: forced("v", f"again{index}")
        again.join("gather_variable")
        return forks

    state = gathering.run(backend=sgl.ScriptedBackend())
    assert state["e"] == ["even0", None, "even2", None, "even4"]
    assert state["old"] == "mine"
    # A later join replaces the list of an earlier one.
    assert state["v"] == ["again0", "again1"]
    forks = state.ret_value
    assert [branch["v"] for branch in forks] == ["0", "1", "2", "3", "4"]
    assert forks[3]["old"] == "theirs"
    assert forks[4].get_meta_info("v")["completion_tokens"] == 1
    assert [meta["completion_tokens"] for meta in state.get_meta_info("v")["branches"]] == [6, 6]
    assert state.get_meta_info("e")["branches"][1] is None


def test_nested_forks_are_isolated():
    @sgl.function
    def nested(s):
        s += "P"
        outer = s.fork(3)
        s += "later"
        leaves = []
        for i, branch in enumerate(outer):
            branch += str(i)
            inner = branch.fork(3)
            branch += "late"
            for j, leaf in enumerate(inner):
                leaf += f".{j}" + forced("v", f"={i}{j}")
                leaves.append(leaf)
            inner.join()
        outer.join()
        return leaves

    state = nested.run(backend=sgl.ScriptedBackend())
    assert [leaf.text() for leaf in state.ret_value] == [f"P{i}.{j}={i}{j}" for i in range(3) for j in range(3)]
    assert state["v"] == [[f"={i}{j}" for j in range(3)] for i in range(3)]
    assert state.text() == "Plater"


def test_branches_share_the_prefix_in_the_cache():
    backend = sgl.ScriptedBackend()

    @sgl.function
    def sharing(s):
        s += "word " * 400
        forks = s.fork(8)
        forks += lambda index: f"branch {index}: " + forced("v", "x")
        forks.join()

    state = sharing.run(backend=backend)
    assert all(meta["cached_tokens"] >= 2000 for meta in state.get_meta_info("v")["branches"])
    commits = [call for call in backend.model.calls if call.sampling["max_new_tokens"] == 0]
    assert len(commits) == 1
    # The text behind the last confirmed id is sent again with what the branch adds: both are tokenized together.
    assert backend.model.calls[-1].payload["text"].startswith("word word")


def test_a_fork_behind_a_gen_has_nothing_to_commit():
    backend = sgl.ScriptedBackend()

    @sgl.function
    def forking(s):
        s += "p" + forced("x", "y")
        forks = s.fork(2)
        forks += "q" + forced("v", "z")
        forks.join()

    assert forking.run(backend=backend)["v"] == ["z", "z"]
    assert len(backend.model.calls) == 3
    assert bytes(backend.model.calls[2].payload["input_ids"]) == b"py"


def test_text_join_goes_on():
    @sgl.function
    def joining(s, mode):
        s += "P"
        forks = s.fork(3)
        forks += lambda index: f"<{index}>"
        forks.join(mode)
        s += "E" + forced("x", "!")

    for mode in ("concatenate", "concate_and_append"):
        assert joining.run(mode, backend=sgl.ScriptedBackend()).text() == "P<0><1><2>E!"
    with pytest.raises(sgl.ArgumentError, match="mode is 'merge'; it must be one of 'gather', 'gather_variable'"):
        joining.run("merge", backend=sgl.ScriptedBackend())


def test_messages_of_branches_come_along_with_their_text():
    @sgl.function
    def joining(s):
        forks = s.fork(2)
        forks += lambda index: sgl.user(f"m{index}")
        forks.join("concatenate")

    messages = joining.run(backend=sgl.ScriptedBackend()).messages()
    assert messages == [{"role": "user", "content": "m0"}, {"role": "user", "content": "m1"}]


@pytest.mark.parametrize("before", ["nothing", "text", "role", "gen"])
def test_fork_is_legal_in_any_state(before):
    @sgl.function
    def forking(s):
        if before == "text":
            s += "text"
        elif before == "role":
            s += sgl.user_begin() + "in a role"
        elif before == "gen":
            s += "p" + forced("x", "y")
        forks = s.fork(2)
        for branch in forks:
            branch += "q" + forced("v", "z")
            if before == "role":
                branch += sgl.user_end()
        forks.join()
        return [branch.text() for branch in forks]

    state = forking.run(backend=sgl.ScriptedBackend())
    assert state["v"] == ["z", "z"]
    assert len(set(state.ret_value)) == 1


def test_fork_does_not_wait_for_the_parent():
    gate = Gate()
    backend = sgl.ScriptedBackend("slow", before=lambda call: gate)

    @sgl.function
    def forking(s):
        s += "p" + sgl.gen("x")
        fork = s.fork(1)
        fork += "q" + forced("v", "z")
        s["seen"] = "x" in fork[0]
        return fork[0]

    state = forking.run(backend=backend)
    assert state["seen"] is False
    gate.open()
    assert state.ret_value["x"] == "slow"
    assert state.ret_value.text() == "pslowqz"


def test_failed_branches_are_reported_at_the_join():
    def answer(call):
        if call.prompt.endswith("1"):
            raise sgl.BackendError("broken", status=500)
        return "ok"

    @sgl.function
    def failing(s, on_error, mode="gather"):
        s += "p"
        forks = s.fork(3)
        forks += lambda index: str(index) + sgl.gen("v")
        forks.join(mode, on_error=on_error)
        return forks

    with pytest.raises(sgl.ProgramError, match=r"gen 'v' at .*: broken"):
        failing.run("raise", backend=sgl.ScriptedBackend(answer))
    state = failing.run("collect", backend=sgl.ScriptedBackend(answer))
    assert state["v"][0] == state["v"][2] == "ok"
    assert state["v"][1] is state.ret_value[1].error()
    assert state.error() is None
    text = failing.run("collect", "concatenate", backend=sgl.ScriptedBackend(answer)).text()
    assert text == "p0ok2ok"


def test_group_rejects_what_does_not_fit():
    @sgl.function
    def misfit(s):
        with pytest.raises(sgl.ArgumentError, match="size is 0"):
            s.fork(0)
        forks = s.fork(2)
        assert len(forks) == 2
        with pytest.raises(sgl.ArgumentError, match="3 items for 2 branches"):
            forks += ["a", "b", "c"]
        forks += ["a", "b"]
        with pytest.raises(sgl.ArgumentError, match="branch 0 cannot be replaced"):
            forks[0] = forks[1]
        forks[1] += "!"
        forks.join()
        with pytest.raises(sgl.ArgumentError, match="joined already"):
            forks.join()
        with pytest.raises(sgl.ArgumentError, match="after its join"):
            forks[0] += "c"
        return [branch.text() for branch in forks]

    assert misfit.run(backend=sgl.ScriptedBackend()).ret_value == ["a", "b!"]


def test_seeds_differ_by_gen_and_branch_and_repeat():
    @sgl.function
    def seeded(s):
        s += "p" + sgl.gen("a") + sgl.gen("b")
        forks = s.fork(2)
        forks += sgl.gen("c")
        forks.join()
        s += sgl.gen("d", seed=5)

    def seeds():
        backend = sgl.ScriptedBackend("x")
        seeded.run(seed=7, backend=backend).sync()
        return sorted(call.sampling["sampling_seed"] for call in backend.model.calls)

    first = seeds()
    assert first == seeds()
    assert len(set(first)) == 5
    assert {5, 7} <= set(first)


@pytest.mark.parametrize("stream", [False, True])
def test_branches_may_be_worked_on_in_threads_of_the_body(stream):
    @sgl.function
    def threaded(s):
        s += "p"
        forks = s.fork(4)

        def work(index):
            forks[index] += forced("v", str(index))
            return forks[index].text()

        with ThreadPoolExecutor(4) as pool:
            texts = list(pool.map(work, range(4)))
        forks.join()
        return texts

    state = threaded.run(stream=stream, backend=sgl.ScriptedBackend())
    assert state["v"] == ["0", "1", "2", "3"]
    state.sync()
    assert state.ret_value == ["p0", "p1", "p2", "p3"]
