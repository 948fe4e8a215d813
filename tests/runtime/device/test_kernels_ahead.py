"""Kernels compiled ahead of their launches: for a GPU that is not there, in a process of its own."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sgl_runtime.device.kernels_ahead import KernelsAhead

TESTS = Path(__file__).resolve().parents[2]


def compile_offline(folder: Path, *arguments: str) -> tuple[dict[str, int], int, str]:
    """What the program says, how many kernels it left in Triton's folder, and its log."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(folder)
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "fakes.offline_gpu", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout), len(list(folder.rglob("*.cubin"))), done.stderr


def test_a_launch_without_memory_compiles_one_variant_for_all_sizes(tmp_path):
    found, num_files, _ = compile_offline(tmp_path)
    assert (found["before"], found["behind"], num_files) == (0, 1, 1)
    assert found["threads"] > 1


def test_attention_by_warps_compiles_for_heads_of_all_kinds(tmp_path):
    found, num_files, log = compile_offline(tmp_path, "--warps")
    assert found["by warps"] == 4
    assert num_files == 1 + 4
    assert log == ""


@pytest.mark.slow
def test_a_rehearsal_compiles_a_whole_model(tmp_path):
    found, num_files, log = compile_offline(tmp_path, "--model")
    assert num_files > 20
    assert found["by warps"] == 1
    assert log == ""


@pytest.mark.slow
@pytest.mark.parametrize("chip", [("80", "166912"), ("89", "101376"), ("90", "232448"), ("120", "101376")])
def test_attention_of_prompts_fits_chips_of_less_shared_memory(tmp_path, chip):
    """Triton would refuse to load what does not fit, and the log would say so."""
    found, num_files, log = compile_offline(tmp_path, "--prompts", *chip)
    assert found == {"prompts": 4, "shared": 4}
    assert num_files == 8
    assert log == ""


def test_a_rehearsal_that_fails_is_told_and_holds_nothing_up(caplog):
    def fail() -> None:
        raise RuntimeError("no compiler here")

    with caplog.at_level(logging.WARNING):
        KernelsAhead(fail, begin_thread=lambda: None).wait()
    assert (
        "kernels are compiled at their first launch, not ahead of it: RuntimeError('no compiler here')" in caplog.text
    )
