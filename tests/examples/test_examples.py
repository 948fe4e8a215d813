"""The example programs on the real model, on a part of their texts."""

import json
import re
import subprocess
import sys

import pytest
from rich.console import Console

from sgl_runtime.demo.example_programs import EXAMPLES, examples_folder, load_example
from sgl_runtime.errors import SglRuntimeError

FOLDER = examples_folder()


def printed_by(name, *arguments):
    """What an example prints, and its namespace."""
    example = load_example(FOLDER, name)
    console = Console(width=100)
    with console.capture() as capture:
        example.run(console, *arguments)
    return capture.get(), example


def read_rows(name):
    return [json.loads(line) for line in (FOLDER / "data" / name).read_text(encoding="utf-8").splitlines()]


def test_articles_are_short_and_hold_what_their_labels_say():
    rows = read_rows("articles.jsonl")
    assert len({row["id"] for row in rows}) == 10
    facts_in = load_example(FOLDER, "json_extraction").facts_in
    for row in rows:
        assert 80 <= len(row["text"].split()) <= 150
        labels = {name: row["expected"][name] for name in ("person", "place", "year")}
        assert str(labels["year"]) in row["text"]
        assert labels["place"] in row["text"]
        assert labels["person"] in row["text"]
        assert facts_in(row["text"]).model_json_schema()["required"] == ["title", "person", "place", "year"]


def test_sentences_have_as_many_labels_of_each_kind():
    labels = [row["label"] for row in read_rows("sentences.jsonl")]
    assert labels.count("positive") == labels.count("negative") == 10


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_are_short_and_have_a_main(example):
    assert len((FOLDER / f"{example.name}.py").read_text(encoding="utf-8").splitlines()) < 80
    assert callable(load_example(FOLDER, example.name).main)


def test_an_example_that_is_not_there_is_named():
    with pytest.raises(SglRuntimeError, match=r"nothing\.py does not exist"):
        load_example(FOLDER, "nothing")


@pytest.mark.model
@pytest.mark.usefixtures("backend")
def test_extracted_json_parses_and_stands_in_the_table():
    output, example = printed_by("json_extraction", 2)
    first, second = read_rows("articles.jsonl")[:2]
    streamed = next(line for line in output.splitlines() if line.startswith("{"))
    facts = example.facts_in(first["text"]).model_validate_json(streamed)
    assert facts.person in first["text"]
    for cell in (first["id"], second["id"], facts.person, facts.place, str(facts.year)):
        assert re.search(rf"│ {re.escape(cell)} ", output)
    assert "All 2 outputs fit their schema; " in output


@pytest.mark.model
@pytest.mark.usefixtures("backend")
def test_branches_answer_from_a_shared_prefix():
    output, example = printed_by("branching")
    counts = re.findall(r"│ +(\d+) │ +(\d+) │", output)
    assert len(counts) == len(example.QUESTIONS) == 4
    assert all(int(cached) >= int(prompt) - 20 for prompt, cached in counts)
    assert "Ferris" in output
    assert re.search(r"Headline, from the article and the four answers: \w+", output)


@pytest.mark.model
@pytest.mark.usefixtures("backend")
def test_labels_are_picked_and_counted():
    output, _ = printed_by("select_labels", 4)
    assert len(re.findall(r"│ (?:positive|negative)(?: \*)? +│ +\d+% │", output)) == 4
    right = int(re.search(r"Accuracy: (\d) of 4 ", output)[1])
    assert output.count(" * ") == 4 - right + 1


@pytest.mark.model
@pytest.mark.slow
def test_an_example_runs_as_a_file():
    command = [sys.executable, str(FOLDER / "select_labels.py"), "--limit", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"Accuracy: \d of 2 ", done.stdout)
