"""`sgl bench serve`: the requests that it makes, what it reads off answers, and a run against a real server."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest

from fakes.scripted_server import ScriptedServer
from sgl_runtime.errors import ConfigError
from sgl_runtime.load_test.client import Outcome
from sgl_runtime.load_test.command import main
from sgl_runtime.load_test.report import Report
from sgl_runtime.load_test.workload import RandomShape, arrival_times, random_requests, read_requests


def test_random_requests_have_the_sizes_asked_for_and_repeat() -> None:
    shape = RandomShape(input_len=40, output_len=10, range_ratio=0.5, prefix_len=7)
    requests = random_requests(shape, 200, vocab_size=5000, seed=3)
    assert requests == random_requests(shape, 200, vocab_size=5000, seed=3)
    lengths = {len(request.prompt) for request in requests}
    assert min(lengths) == 27
    assert max(lengths) == 47
    assert {request.max_tokens for request in requests} == set(range(5, 11))
    assert len({tuple(request.prompt[:7]) for request in requests}) == 1
    assert len({tuple(request.prompt[7:]) for request in requests}) == 200


def test_arrivals_are_poisson_at_the_rate_asked_for() -> None:
    times = list(arrival_times(20_000, rate=50.0, seed=1))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(1 / 50, rel=0.03)
    # An exponential distribution has a deviation as large as its mean.
    assert math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) == pytest.approx(mean, rel=0.05)
    assert set(arrival_times(5, rate=math.inf, seed=1)) == {0.0}


def test_files_of_three_forms_are_read(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"prompt": "a", "max_tokens": 3}\n\n{"messages": [{"role": "user", "content": "b"}]}\n')
    first, second, again = read_requests(lines, 3, output_len=9)
    assert (first.prompt, first.max_tokens) == ("a", 3)
    assert (second.prompt, second.max_tokens) == ([{"role": "user", "content": "b"}], 9)
    assert again == first
    shared = tmp_path / "sharegpt.json"
    shared.write_text(json.dumps([{"conversations": [{"from": "human", "value": "hello"}]}]))
    assert read_requests(shared, 1, output_len=9)[0].prompt == "hello"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no requests"),
        ("{", "neither JSON lines nor a JSON list"),
        ("[3]", r"data\[0\] is no object"),
        ('{"max_tokens": 3}', "neither prompt, messages nor conversations"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens is 0; it must be an integer of at least 1"),
        ('{"conversations": [{}]}', r"conversations\[0\] has no text"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "data"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_requests(path, 3, output_len=9)


def test_the_report_is_what_the_outcomes_say() -> None:
    outcomes = [
        Outcome(sent=0.0, arrivals=[0.1, 0.3, 0.6], ended=0.6, prompt_tokens=10, output_tokens=3, cached_tokens=4),
        Outcome(sent=1.0, arrivals=[1.2], ended=2.0, prompt_tokens=5, output_tokens=1),
        Outcome(sent=1.0, ended=1.5, error="status 503: full"),
    ]
    report = Report.of(outcomes, client_cpu_s=0.5)
    assert (report.num_requests, report.num_failed, report.seconds) == (3, 1, 2.0)
    assert (report.prompt_tokens, report.cached_tokens, report.output_tokens) == (15, 4, 4)
    assert report.throughput()["output_tokens_per_second"] == 2.0
    assert report.ttft is not None
    assert report.ttft.mean == pytest.approx(150)
    assert report.itl is not None
    assert report.itl.median == pytest.approx(250)
    assert report.tpot is not None
    assert report.tpot.mean == pytest.approx(250)
    assert report.client_share == 0.25
    assert report.errors == {"status 503: full": 1}


@pytest.mark.parametrize("backend", ["completions", "generate"])
def test_a_run_against_a_server(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    with ScriptedServer() as server:
        arguments = ["serve", "--base-url", server.url + "/v1/", "--backend", backend, "--num-prompts", "12"]
        arguments += ["--random-input-len", "20", "--random-output-len", "6", "--request-rate", "200"]
        assert main([*arguments, "--max-concurrency", "4", "--output-file", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert (figures["num_requests"], figures["num_failed"]) == (12, 0)
    assert (figures["prompt_tokens"], figures["output_tokens"]) == (240, 72)
    assert figures["ttft"]["median"] > 0
    assert figures["e2e"]["median"] >= figures["ttft"]["median"]
    assert "12 of 12" in capsys.readouterr().out


def test_answers_that_do_not_come_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer() as server:
        arguments = ["serve", "--base-url", server.url, "--num-prompts", "3", "--warmup-requests", "0"]
        assert main([*arguments, "--extra-request-body", '{"top_p": 7}']) == 1
        shown = capsys.readouterr().out
        assert "failed 3 times: status 400" in shown
        assert "top_p is 7" in shown
        assert main([*arguments, "--backend", "chat"]) == 2
    assert main(arguments) == 2
    assert "no server answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num-prompts", "0"], "must be an integer of at least 1"),
        (["--request-rate", "-1"], "must be a number above 0"),
        (["--random-range-ratio", "1.5"], "must be above 0, at most 1"),
        (["--extra-request-body", "[]"], "is JSON, but no object"),
        (["--backend", "grpc"], "invalid choice: 'grpc'"),
    ],
)
def test_wrong_flags_are_refused(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["serve", *flags])
    assert message in capsys.readouterr().err
