"""Every piece of code of the tutorials runs, in order, in one namespace."""

import re
from pathlib import Path

import pytest

TUTORIALS = sorted((Path(__file__).parents[2] / "tutorials").glob("*.md"))


def test_there_are_tutorials():
    assert TUTORIALS


@pytest.mark.model
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_code_of_a_tutorial_runs(path):
    text = path.read_text(encoding="utf-8")
    namespace = {"__name__": f"tutorial_{path.stem}"}
    cells = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert cells
    for cell in cells:
        # Blank lines in front: a traceback then has the line numbers of the tutorial.
        line = text.count("\n", 0, cell.start(1))
        exec(compile("\n" * line + cell[1], str(path), "exec"), namespace)
