"""The simulator: its traces, and what the order of requests is worth on them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT / "runtime"), str(ROOT / "lang")])
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "schedule_sim.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )


def reports(*arguments: str) -> dict[str, dict[str, float]]:
    done = simulate("--json", *arguments)
    assert done.returncode == 0, done.stderr
    return {line["policy"]: line for line in map(json.loads, done.stdout.splitlines())}


def test_the_longest_prefix_first_comes_close_to_the_best_order():
    traffic = ("--traces", "few-shot", "--requests", "600", "--slots", "8000")
    found = reports(*traffic, "--policies", "lpm,fcfs")
    best = found["lpm"]["best_hit_rate_this_size"]
    assert found["lpm"]["hit_rate"] > 0.96 * best
    assert found["fcfs"]["hit_rate"] < 0.8 * best
    assert found["lpm"]["requests_per_s"] > found["fcfs"]["requests_per_s"]


@pytest.mark.slow
def test_a_written_trace_gives_what_it_was_generated_for(tmp_path):
    made = ("--traces", "tree-of-thought", "--requests", "60", "--seed", "5")
    assert simulate(*made, "--write", str(tmp_path)).returncode == 0
    figures = [
        reports("--policies", "lpm", "--slots", "9600", "--page-size", "16", "--host-ratio", "1", *source)["lpm"]
        for source in (made, ("--file", str(tmp_path / "tree-of-thought.jsonl")))
    ]
    for report in figures:
        del report["wall_s"], report["simulated_requests_per_wall_s"]
    assert figures[0] == figures[1]


def test_a_broken_trace_names_its_line(tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_text("[-1, 0.0, [[1, 5]], 3, 9]\n[7, 0.0, [], 3, 9]\n")
    done = simulate("--file", str(path))
    assert done.returncode != 0
    assert "broken.jsonl:2 goes on from nothing before it" in done.stderr
