"""Modules of FlashInfer: what is there is used, what is not is compiled beside; with a package that stands for it."""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from fakes.fake_flashinfer import FakeFlashInfer, fake_flashinfer
from sgl_runtime.device.flashinfer_build import BuildProcess, FlashInferModule
from sgl_runtime.device.flashinfer_library import ModuleRequest, is_built, jit_spec, why_no_prefill, why_no_sampling

REQUEST = ModuleRequest("prefill", algorithm="fa3", dtype="bfloat16", head_dim=128)
NAME = "prefill_fa3_bfloat16_128"
CUDA = torch.device("cuda", 0)


@pytest.fixture
def library(tmp_path: Path) -> Iterator[FakeFlashInfer]:
    with fake_flashinfer(tmp_path) as package:
        yield package


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


def wait_for_end(process: psutil.Process) -> None:
    """Without taking the exit status from whoever started it."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_a_request_survives_its_way_to_the_process():
    assert ModuleRequest.decode(REQUEST.encode()) == REQUEST


def test_a_module_that_is_there_is_ready_at_once(library):
    library.build(NAME)
    before = psutil.Process().children()
    assert FlashInferModule(REQUEST, instead="triton").is_ready()
    assert psutil.Process().children() == before


@pytest.mark.parametrize("word", ["work", "fail"])
def test_a_module_that_is_not_there_is_compiled_beside(library, caplog, word):
    caplog.set_level(logging.INFO)
    before = {child.pid for child in psutil.Process().children()}
    module = FlashInferModule(REQUEST, instead="triton")
    assert not module.is_ready()
    (process,) = (child for child in psutil.Process().children() if child.pid not in before)
    library.let_builds_end(word)
    wait_for_end(process)
    assert module.is_ready() == (word == "work")
    assert module.is_ready() == (word == "work"), "it stays so"
    lines = [record.getMessage() for record in caplog.records if record.name.endswith("flashinfer_build")]
    assert lines[0] == "compiling kernels of flashinfer module=prefill meanwhile=triton"
    if word == "work":
        assert lines[1].startswith("compiled kernels of flashinfer module=prefill seconds=")
    else:
        assert lines[1].endswith("used_instead=triton error=RuntimeError: Ninja build failed.")
    assert len(lines) == 2


def test_a_compilation_ends_with_its_owner(library):
    build = BuildProcess(REQUEST)
    process = psutil.Process(build.pid)
    assert not build.is_over()
    del build
    assert not process.is_running()


@pytest.mark.skipif(shutil.which("ninja") is None, reason="needs ninja")
def test_a_module_that_ninja_would_compile_anew_is_not_there(tmp_path):
    source = tmp_path / "source.cu"
    source.touch()
    rule = f"rule copy\n  command = cp $in $out\nbuild {tmp_path}/module.so: copy {source}\n"

    class Spec:
        is_aot, is_compiled, build_dir, ninja_path = False, True, tmp_path, tmp_path / "build.ninja"

        def write_ninja(self) -> None:
            self.ninja_path.write_text(rule, encoding="utf-8")

    assert not is_built(Spec())
    os.system(f"ninja -C {tmp_path} >/dev/null")
    assert is_built(Spec())
    os.utime(source, (2e9, 2e9))
    assert not is_built(Spec())


def test_what_is_in_the_way_is_named(library, hopper, monkeypatch):
    assert "device is cpu" in why_no_prefill(dtype=torch.bfloat16, head_dim=128, device=torch.device("cpu"))
    assert "device is cpu" in why_no_sampling(torch.device("cpu"))
    assert "has float32 with heads of 128" in why_no_prefill(dtype=torch.float32, head_dim=128, device=CUDA)
    assert "has float16 with heads of 80" in why_no_prefill(dtype=torch.float16, head_dim=80, device=CUDA)
    monkeypatch.setattr(shutil, "which", lambda tool: f"/bin/{tool}")
    assert "there is no CUDA compiler" in why_no_sampling(CUDA)
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    assert "ninja is not in PATH" in why_no_sampling(CUDA)
    library.build("sampling")
    assert why_no_sampling(CUDA) is None
    assert why_no_prefill(dtype=torch.bfloat16, head_dim=128, device=CUDA) is not None
    library.build(NAME)
    assert why_no_prefill(dtype=torch.bfloat16, head_dim=128, device=CUDA) is None
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "compute capability 8.0" in why_no_sampling(CUDA)


def test_a_package_that_does_not_load_is_in_the_way(library, hopper):
    (library.folder / "flashinfer" / "__init__.py").write_text("raise ImportError('no libcuda')", encoding="utf-8")
    assert why_no_sampling(CUDA) == "package flashinfer-python cannot be loaded: no libcuda"


def test_its_messages_stay_out_of_ours(library):
    jit_spec(REQUEST)
    assert library.module is not None
    assert not logging.getLogger("flashinfer.jit.core").isEnabledFor(logging.WARNING)
