"""docs/language.md says what the docstrings say, and its example runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import sgl

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.timeout(30)


def test_the_reference_is_up_to_date():
    command = [sys.executable, str(DOCS / "build_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_has_an_entry():
    headings = re.findall(r"^#### (?:class )?`(\w+)", (DOCS / "language.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(sgl.__all__) - {"__version__"} <= set(headings)
    assert len(headings) == len(set(headings))


def test_the_example_of_the_page_runs(capsys):
    code = re.search(r"```python\n(.*?)```", (DOCS / "language.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    sgl.set_default_backend(sgl.ScriptedBackend(" Paris. It"))
    exec(code, {"__name__": "language", "sgl": sgl})
    assert capsys.readouterr().out == " Paris\n"
