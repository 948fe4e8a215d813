"""Imports run down the layers of docs/architecture.md."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "runtime" / "sgl_runtime"
LANGUAGE = ROOT / "lang" / "sgl"

LEAVES = {
    "docstring_attributes",
    "config",
    "config_checks",
    "config_serving",
    "config_values",
    "errors",
    "native_modules",
    "registry",
    "sampling_params",
    "batch",
    "logs",
    "version",
    "stopwatch",
    "model_info",
}
RANKS = {
    **dict.fromkeys(LEAVES, 0),
    "model_store": 1,
    "stops": 1,
    "device": 2,
    "forward": 3,
    "attention": 4,
    "layers": 5,
    "models": 6,
    "model_runner": 7,
    "executor.local": 8,
    "executor": 9,
    "cache": 9,
    "grammar": 9,
    "ipc": 9,
    "tokenizer": 9,
    "detokenizer": 10,
    "scheduler": 10,
    "server": 10,
}
WIRING = 11
TORCH_RANKS = range(2, 9)
LEAF_ORDER = [
    "docstring_attributes",
    "errors",
    "registry",
    "config_checks",
    "config_serving",
    "config",
    "config_values",
    "native_modules",
    "sampling_params",
    "batch",
    "logs",
    "version",
    "stopwatch",
    "model_info",
]


def part_of(module: str) -> str:
    """The layer entry of a dotted name below the package."""
    if module.startswith("executor.local"):
        return "executor.local"
    return module.split(".")[0]


def imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(RUNTIME.rglob("*.py")):
        name = ".".join(path.relative_to(RUNTIME).with_suffix("").parts).removesuffix(".__init__")
        found.append((name, path))
    assert len(found) > 100
    return found


def test_imports_run_down_the_layers():
    wrong = []
    for name, path in modules():
        here = part_of(name)
        for target, line in imports(path):
            if not target.startswith("sgl_runtime."):
                continue
            there = part_of(target.removeprefix("sgl_runtime."))
            if there == here:
                continue
            low, high = RANKS.get(there, WIRING), RANKS.get(here, WIRING)
            in_order = LEAF_ORDER.index(there) < LEAF_ORDER.index(here) if low == high == 0 else low < high
            if not in_order and not low == high == WIRING:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {target}")
    assert wrong == []


def test_processes_do_not_import_each_other():
    folders = {"scheduler", "server", "detokenizer"}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for name, path in modules()
        for target, line in imports(path)
        if part_of(name) in folders
        and part_of(target.removeprefix("sgl_runtime.")) in folders - {part_of(name)}
        and target.startswith("sgl_runtime.")
    ]
    assert wrong == []


def test_torch_is_imported_by_the_device_half_alone():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for name, path in modules()
        for target, line in imports(path)
        if target.split(".")[0] == "torch" and RANKS.get(part_of(name), WIRING) not in TORCH_RANKS
    ]
    assert wrong == []


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_the_language_loads_neither_torch_nor_the_runtime():
    assert not loaded_by("import sgl") & {"torch", "sgl_runtime", "transformers", "numpy"}


@pytest.mark.parametrize(
    "module",
    ["server.app", "server.tokenizer_manager", "detokenizer.detokenizer", "tokenizer.tokenizer", "scheduler.scheduler"],
)
def test_host_parts_load_no_torch(module):
    assert "torch" not in loaded_by(f"import sgl_runtime.{module}")


def test_the_language_imports_the_runtime_by_name_only():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in LANGUAGE.rglob("*.py")
        for target, line in imports(path)
        if target.split(".")[0] in {"sgl_runtime", "torch"}
    ]
    assert wrong == []
