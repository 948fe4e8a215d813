"""The example programs that show one feature each, on the real model and over HTTP."""

import re
import subprocess
import sys

import pytest

from fakes.example_output import printed_by
from sgl_runtime.demo.example_programs import examples_folder

FOLDER = examples_folder()
NAMES = ["async_chat", "batch", "recording", "streaming", "tools", "typed_results"]


@pytest.mark.parametrize("name", [*NAMES, "chat_api", "composition", "images", "reasoning", "sampling", "testing"])
def test_examples_are_short_and_say_how_to_run_them(name):
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 80
    assert f"Run it: python examples/{name}.py [--url http://127.0.0.1:30000]" in text


@pytest.mark.parametrize("name", NAMES)
def test_examples_know_the_address_of_a_server(name):
    done = subprocess.run([sys.executable, str(FOLDER / f"{name}.py"), "--help"], capture_output=True, text=True)
    assert (done.returncode, "--url" in done.stdout) == (0, True)


@pytest.mark.model
@pytest.mark.usefixtures("backend")
def test_an_object_grows_until_it_is_whole():
    output = printed_by("streaming", "bridges")
    assert re.search(r"so far: \{'title': ", output)
    assert re.search(r"whole:  Card\(title='", output)


@pytest.mark.model
@pytest.mark.usefixtures("backend")
def test_conversations_go_on_at_the_same_time():
    output = printed_by("async_chat")
    assert [len(re.findall(rf"│ {guest} ", output)) for guest in ("Ada", "Ben", "Cem", "Dia")] == [2, 2, 2, 2]
    assert "4 conversations of 2 turns in " in output


@pytest.mark.model
@pytest.mark.usefixtures("backend")
def test_values_have_their_types():
    output = printed_by("typed_results")
    assert re.search(r"│ (?:True|False) +│", output)
    assert "<Mood." in output
    assert "datetime.date(" in output
    assert "Ship(name=" in output
    assert "was cut after 5 tokens" in " ".join(output.split())


@pytest.mark.model
@pytest.mark.usefixtures("backend")
def test_tools_are_called_with_what_fits():
    output = printed_by("tools")
    assert re.search(r"temperature_in\(city='\w+'\) -> \d+", output)
    assert re.search(r"warmest_of\(cities=\['\w+', .*\]\) -> '\w+'", output)
    assert re.search(r"The answer is -?\d+\.\n", output)
    assert re.search(r"The answer is '(?:Oslo|Cairo|Lima)'\.\n", output)


@pytest.mark.model
@pytest.mark.usefixtures("backend")
def test_a_recording_becomes_a_page(tmp_path):
    output = printed_by("recording", tmp_path / "page.html")
    assert re.search(r"state 1: gen 'way', \d+ tokens in, \d+ of them cached", output)
    assert 'class="gen"' in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.model
@pytest.mark.usefixtures("backend")
def test_a_batch_keeps_the_place_of_what_failed():
    output = printed_by("batch", 3)
    assert "item 3 failed: an empty text" in output
    assert re.search(r"[1-9]\d+ of \d+ prompt tokens were found in the cache", output)
