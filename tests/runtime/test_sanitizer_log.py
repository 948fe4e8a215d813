"""What the program that runs the kernels' tests under a sanitizer makes of the sanitizer's log."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "sanitize_kernels.py"
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at first_kernel+0x140 in first.py:30
=========     and Read access at first_kernel+0xe0 in first.py:31 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
READS = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void library::first_kernel_of_another<4>(int)+0x70
=========     by thread (31,0,0) in block (1,0,0)
=========
===== tests of the program under check =====
========= Invalid __global__ read of size 2 bytes
=========     at second_kernel+0x1b8 in second.py:12
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f7a4e000000 is out of bounds
=========
========= ERROR SUMMARY: 7 errors
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
REFUSED = "========= COMPUTE-SANITIZER\n========= Error: Device not supported\n"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("sanitize_kernels", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look for the module of a class.
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "ours", "others", "is_whole"),
    [
        (RACE, ["Error: Race reported between Write access at first_kernel+0x140 in first.py:30 [first_kernel]"], 0, True),
        (READS, ["Invalid __global__ read of size 2 bytes [second_kernel]"], 6, True),
        (CLEAN, [], 0, True),
        (REFUSED, [], 1, False),
        ("", [], 0, False),
    ],
)  # fmt: skip
def test_reports_are_ours_where_they_name_our_kernels(program, text, ours, others, is_whole):
    assert program.read_log(text, ["first_kernel", "second_kernel"]) == (ours, others, is_whole)


@pytest.mark.parametrize(
    ("status", "ours", "is_whole", "outcome"),
    [
        (0, [], True, "clean"),
        (86, [], True, "clean"),
        (1, [], True, "tests failed (1)"),
        (86, ["a race"], True, "findings"),
        (0, [], False, "no verdict"),
        (None, ["a race"], False, "out of time"),
    ],
)
def test_only_a_whole_run_without_findings_is_clean(program, status, ours, is_whole, outcome):
    assert program.Verdict(status, 1.0, ours, 3, is_whole).outcome == outcome


def test_all_kernels_are_known_by_name(program):
    names = program.kernel_names()
    assert {"attend_pieces_kernel", "find_least_kernel", "draw_blocks_kernel", "rotate_and_store_kernel"} <= set(names)
    assert len(names) > 15
