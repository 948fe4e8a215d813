"""The command `sgl demo`."""

import re
import subprocess
import sys

import pytest

from sgl_runtime.cli import main
from sgl_runtime.demo.usage import Usage


def test_a_model_that_does_not_exist_is_one_sentence(capsys):
    assert main(["demo", "--model-path", "no-such-model"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"sgl demo: model path 'no-such-model' does not exist; give .*\n", err)


def test_usage_is_the_difference_of_two_readings():
    names = ("prompt_tokens_total", "cached_tokens_total", "generation_tokens_total", "grammar_mask_seconds_total")
    before = dict(zip(names, (10, 5, 1, 0.5), strict=True))
    after = dict(zip(names, (1310, 655, 401, 0.75), strict=True))
    usage = Usage.between(before, after, elapsed_s=5.0)
    assert usage.cells == ["5.0 s", "1,300", "650 (50%)", "400", "80", "0.25 s (5%)"]
    idle = Usage.between(before, before, elapsed_s=1.0)
    assert idle.cells == ["1.0 s", "0", "0 (-)", "0", "-", "-"]


@pytest.mark.model
def test_the_demo_runs_all_programs_and_says_what_they_cost():
    command = [sys.executable, "-m", "sgl_runtime", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    output = done.stdout
    assert "\x1b" not in output
    assert max(map(len, output.splitlines())) <= 100
    for heading in ("1. JSON extraction", "2. Branching", "3. Choosing", "Summary"):
        assert re.search(rf"^{re.escape(heading)} ", output, re.MULTILINE)
    assert "All 10 outputs fit their schema; " in output
    assert len(re.findall(r"│ +\d+ │ +\d+ │$", output, re.MULTILINE)) == 4
    assert int(re.search(r"Accuracy: (\d+) of 20 ", output)[1]) > 14
    cells = re.search(r"^│ all three +│(.*)│$", output, re.MULTILINE)[1].split("│")
    elapsed, prompt, cached, generated, rate, constraints = (cell.strip() for cell in cells)
    assert int(generated.replace(",", "")) > 200
    assert int(prompt.replace(",", "")) > 5000
    assert re.fullmatch(r"[\d,]+ \([5-9]\d%\)", cached)
    assert float(elapsed.removesuffix(" s")) > 0
    assert int(rate) > 0
    assert re.fullmatch(r"\d+\.\d\d s \(\d+%\)", constraints)
