"""The example programs of the rest of the language: on a script where that says enough, else on the small real model."""

import re
import subprocess
import sys

import pytest

import sgl
from fakes.example_output import printed_by
from sgl_runtime.demo.example_programs import examples_folder

FOLDER = examples_folder()
SCRIPTED = ["chat_api", "images", "testing"]


@pytest.mark.parametrize("name", SCRIPTED)
def test_examples_run_as_files_without_a_server(name):
    done = subprocess.run([sys.executable, str(FOLDER / f"{name}.py")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_a_program_is_tested_without_a_model():
    assert printed_by("testing").count("passed: ") == 3


def test_branches_keep_the_images():
    backend = sgl.ScriptedBackend(["Color.", "Size."])
    output = printed_by("images", backend, [b"\x89PNG\r\n\x1a\n1", b"\x89PNG\r\n\x1a\n2"])
    assert re.search(r"What differs: (Color|Size)\.\n", output)
    sent = [call.payload["image_data"] for call in backend.model.calls if call.sampling["max_new_tokens"]]
    assert [len(images) for images in sent] == [2, 2]


def test_gens_are_served_by_calls_of_their_own_where_prefixes_are_cached():
    output = printed_by("chat_api", sgl.ScriptedBackend([" Ann", " pilot", " Oslo"]), sgl.ScriptedBackend("Go."))
    assert "town: 'Oslo' (85 prompt tokens)" in output
    assert "calls: 3" in output
    assert output.count("advice: Go.") == 2


def test_programs_are_built_of_programs_on_a_script():
    answers = iter(['"Hello."', '"Well?"', '"Goodbye."', " Curtain. "])
    sgl.set_default_backend(sgl.ScriptedBackend(lambda call: next(answers)))
    output = printed_by("composition")
    assert "gen 'words' at " in output
    assert 'Ada:"Hello."\nBen:"Well?"\nAda:"Goodbye."\n' in output
    assert "3 lines; the branch found it" in output
    assert output.endswith("The end:  Curtain. \n")


def test_thinking_is_told_apart_on_a_script():
    answers = {"<think>\n": "four times three", "</think>\n\n": "12"}

    def answer(call):
        return next((text for ending, text in answers.items() if call.prompt.endswith(ending)), "True")

    sgl.set_default_backend(sgl.ScriptedBackend(answer))
    output = printed_by("reasoning")
    assert "thought: four times three" in output
    assert "answer: 12, even: True" in output
    assert "'12', 'Is that an even number?', 'True']" in output


@pytest.mark.model
@pytest.mark.usefixtures("backend")
def test_thinking_and_answers_of_the_real_model():
    output = printed_by("reasoning")
    assert len(re.findall(r"answer: \d{1,2}, even: (?:True|False)\n", output)) == 2
    assert output.count("thought: ") == 2
    assert "<think>" not in output


@pytest.mark.model
@pytest.mark.usefixtures("backend")
def test_samples_and_probabilities_of_the_real_model():
    output = printed_by("sampling")
    first, again, other = re.findall(r"seed \d: (\[.*\])", output)
    assert first == again != other
    assert re.search(r"The code of the door is [A-Z]{2}-\d{3}\. It was set in the year \d+", output)
    assert len(re.findall(r"'.*': \d+%\n", output)) == 3


@pytest.mark.model
@pytest.mark.slow
def test_a_chat_api_of_a_real_server_serves_several_gens_by_one_call():
    from fakes.server_process import REAL, ServerProcess

    server = ServerProcess("--max-total-tokens", "4096", model_path="smollm2", main=REAL)
    try:
        server.wait_for_line("serving url=")
        command = [sys.executable, str(FOLDER / "chat_api.py"), "--url", server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    finally:
        server.close()
    assert (done.returncode, done.stderr) == (0, "")
    calls = int(re.search(r"calls: (\d)", done.stdout)[1])
    assert calls + done.stdout.count("(from the call before)") == 3
    assert done.stdout.count("advice: ") == 2
