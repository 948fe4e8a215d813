"""Recordings: every node with ids, parameters, timing; JSON and one page (row 21 of table C)."""

import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser

import pytest

import sgl

pytestmark = pytest.mark.timeout(20)

EVIL = "<script>alert('&amp;')</script>\"'"


def forced(name, value, **options):
    return sgl.gen(name, regex=re.escape(value), **options)


@sgl.function
def program(s, text="Q: "):
    with s.user():
        s += text
        s += "more"
    s += forced("x", "ab", return_logprob=True) + sgl.select("y", ["!", "?"])
    forks = s.fork(2)
    forks += lambda index: f"<{index}>" + sgl.gen("v", max_tokens=3)
    forks.join("concatenate")
    s += "end"


def test_a_recording_has_every_node_with_what_was_sent_and_said():
    backend = sgl.ScriptedBackend("free text")
    with sgl.record() as recording:
        state = program.run(backend=backend)
        text = state.text()
    program.run(backend=backend).sync()
    data = recording.to_dict()
    (run,) = data["runs"]
    assert (run["program"], [state["parent"] for state in run["states"]]) == ("program", [None, 0, 0])
    nodes = run["states"][0]["nodes"]
    assert [node["kind"] for node in nodes] == ["role", "text", "role", "gen", "select", "joined", "joined", "text"]
    assert "".join(node["text"] for node in nodes) == text
    gen, select = nodes[3], nodes[4]
    call = next(call for call in backend.model.calls if "regex" in call.sampling)
    assert tuple(gen["prompt_ids"]) == call.prompt_ids
    assert bytes(gen["output_ids"]) == b"ab"
    assert gen["sampling_params"] == call.sampling
    assert gen["constraint"] == {"kind": "regex", "text": "ab"}
    assert [token[2] for token in gen["tokens"]] == ["a", "b"]
    assert gen["finish_reason"] == {"type": "stop", "matched": None}
    assert gen["counts"] == {"prompt_tokens": len(call.prompt_ids), "completion_tokens": 2, "cached_tokens": 0}
    assert (gen["name"], "test_recording.py:" in gen["source"]) == ("x", True)
    assert gen["ended_s"] >= gen["started_s"] >= nodes[0]["started_s"] >= 0
    assert sum(choice["probability"] for choice in select["choices"]) == pytest.approx(1.0)
    assert [state["nodes"][1]["text"] for state in run["states"][1:]] == ["fre", "fre"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_can_record_itself(tmp_path, stream):
    state = program.run(record=True, stream=stream, backend=sgl.ScriptedBackend("x"))
    state.sync()
    path = tmp_path / "t.json"
    state.recording.save(path)
    assert json.loads(path.read_text()) == json.loads(json.dumps(state.recording.to_dict()))
    plain = program.run(backend=sgl.ScriptedBackend("x"))
    with pytest.raises(sgl.ArgumentError, match="this run was not recorded"):
        plain.recording  # noqa: B018 - reading it is the test


def test_batches_and_branches_are_recorded_from_their_threads():
    with sgl.record() as recording:
        program.run_batch([{"text": str(n)} for n in range(20)], backend=sgl.ScriptedBackend("x"))
    assert len(recording.runs) == 20
    assert {len(run.states) for run in recording.runs} == {3}


def test_a_failed_node_is_recorded_with_its_error(tmp_path):
    @sgl.function
    def failing(s):
        s += "p" + sgl.gen("x", type=int, max_tokens=1) + sgl.gen("y")

    state = failing.run(record=True, backend=sgl.ScriptedBackend(["12"]))
    assert state.error() is not None
    gens = state.recording.runs[0].states[0].nodes[1:]
    assert "was cut after 1 tokens" in gens[0].error
    assert "no answer left" in gens[1].error
    state.recording.html(tmp_path / "t.html")
    shown, _ = (tmp_path / "t.html").read_text().split("<details>", 1)
    assert "was cut after 1 tokens" in shown
    assert "gen y at " in shown
    assert "no answer left" in shown.split("gen y at ")[1]


class Checker(HTMLParser):
    """Collects what a page loads and runs, and the titles of its tokens."""

    def __init__(self):
        super().__init__()
        self.tags, self.links, self.titles, self.text = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href"):
                self.links.append(value)
            if name == "title":
                self.titles.append(value)
            assert not name.startswith("on")

    def handle_data(self, data):
        self.text += data


def test_the_page_is_self_contained_and_escapes_everything(tmp_path):
    def evil(call):
        return EVIL

    @sgl.function
    def hostile(s):
        s += EVIL + sgl.gen("x" + EVIL, return_logprob=True) + sgl.select("y", [EVIL, "?"])
        s += forced("z", EVIL) + sgl.gen("bad", type=int)

    with sgl.record() as recording:
        program.run(backend=sgl.ScriptedBackend("x")).sync()
        hostile.run(backend=sgl.ScriptedBackend(evil)).error()
    path = tmp_path / "t.html"
    recording.html(path)
    page = path.read_text()
    checker = Checker()
    checker.feed(page)
    assert "script" not in checker.tags
    assert all(link.startswith("#r") for link in checker.links)
    assert checker.text.count(EVIL) >= 4
    assert "36.8% (token 97)" in checker.titles
    assert "url(" not in page
    assert "prefers-color-scheme: dark" in page
    for kind in ("role", "gen", "constrained", "select", "joined", "constrained failed"):
        assert f'class="{kind}"' in page


def test_nothing_is_recorded_outside_of_a_recording():
    with sgl.record() as recording:
        pass
    program.run(backend=sgl.ScriptedBackend("x")).sync()
    assert recording.runs == []
    recorded = recording.to_dict()
    assert recorded["runs"] == []


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.timeout(60)
def test_a_browser_shows_the_page_as_it_was_written(tmp_path):
    with sgl.record() as recording:
        text = program.run(EVIL, backend=sgl.ScriptedBackend("free text")).text()
    recording.html(tmp_path / "page.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += [
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    command = ["chromium", *flags, "--dump-dom", (tmp_path / "page.html").as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout
    (state, *branches) = re.findall(r"<pre>(.*?)</pre>", shown, re.DOTALL)
    assert unescape(re.sub(r"<[^>]*>", "", state)) == text
    assert len(branches) == 2
    # Every row of the tables has a cell for each column, in the browser's own reading of the markup.
    for row in re.findall(r"<tr>(.*?)</tr>", shown, re.DOTALL):
        assert row.count("<t") in (2, 8)
