"""A package that stands for FlashInfer, in this process and in those that it starts."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

_FILES = {
    "__init__.py": "",
    "jit/__init__.py": '''
"""Specs are built where the file `go` says so: a pipe that the test writes to."""
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Spec:
    def __init__(self, name):
        self.name = name

    @property
    def is_aot(self):
        return (ROOT / f"{self.name}.so").exists()

    is_compiled = False

    def build(self, verbose):
        if (ROOT / "go").read_text() == "fail":
            raise RuntimeError("Ninja build failed.")
        (ROOT / f"{self.name}.so").touch()


def gen_batch_prefill_module(algorithm, q, k, o, index, dim, value_dim, *options):
    assert q == k == o and dim == value_dim and options == (0, False, False, False)
    return Spec(f"prefill_{algorithm}_{str(q).removeprefix('torch.')}_{dim}")
''',
    "jit/core.py": 'import logging\n\nlogger = logging.Logger("flashinfer.jit")\n',
    "jit/sampling.py": 'from flashinfer.jit import Spec\n\n\ndef gen_sampling_module():\n    return Spec("sampling")\n',
    "jit/cpp_ext.py": "from flashinfer.jit import ROOT\n\n\ndef get_cuda_path():\n    return str(ROOT / 'cuda')\n",
}


class FakeFlashInfer:
    """The package in a folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in _FILES.items():
            path = folder / "flashinfer" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        os.mkfifo(folder / "go")

    @property
    def module(self) -> ModuleType:
        return importlib.import_module("flashinfer")

    def build(self, name: str) -> None:
        """Have a module as if it had been compiled before."""
        (self.folder / f"{name}.so").touch()

    def let_builds_end(self, word: str) -> None:
        """Wait for a build and let it end: `work` or `fail`."""
        (self.folder / "go").write_text(word, encoding="utf-8")


@contextmanager
def fake_flashinfer(folder: Path) -> Iterator[FakeFlashInfer]:
    """Put the package in front of what is installed."""
    package = FakeFlashInfer(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.split(".")[0] == "flashinfer"]:
            patch.delitem(sys.modules, name)
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
        yield package
        for name in [name for name in sys.modules if name.split(".")[0] == "flashinfer"]:
            del sys.modules[name]
