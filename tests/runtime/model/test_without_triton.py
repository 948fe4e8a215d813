"""A runtime on a CPU needs no Triton, which many builds of torch come without."""

import subprocess
import sys
from pathlib import Path

import pytest

from fakes.tiny_llama import save_tiny_llama
from sgl_runtime.engine import Engine
from sgl_runtime.errors import ConfigError

PROGRAM = """
import sys
sys.modules["triton"] = None
from sgl_runtime.engine import Engine
with Engine(sys.argv[1], device="cpu", max_total_tokens=128) as engine:
    reply = engine.generate("a", sampling_params={"regex": "[a-f]{3}", "temperature": 0})
assert len(reply["text"]) == 3
"""


def test_a_cpu_generates_without_triton(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_an_attention_that_the_device_does_not_run_is_refused(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path)
    with pytest.raises(ConfigError) as error:
        Engine(str(tmp_path), device="cpu", attention_backend="triton")
    allowed = "auto, reference, invariant"
    assert error.value.message == f"attention_backend is 'triton'; on device cpu it must be one of {allowed}"
