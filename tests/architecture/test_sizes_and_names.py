"""The size limits and naming rules of CONTRIBUTING.md."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*(ROOT / "lang").rglob("*.py"), *(ROOT / "runtime").rglob("*.py")])
EVERYTHING = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))]

MAX_FILE = 400
MAX_FUNCTION = 60
MAX_METHODS = 20
MAX_ARGUMENTS = 8
BANNED_FILES = {"utils.py", "common.py", "helpers.py", "misc.py"}
BANNED_CALLS = {"hasattr"}


def trees() -> list[tuple[Path, ast.Module]]:
    assert len(SOURCES) > 150
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCES]


def test_files_are_short():
    sizes = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in EVERYTHING}
    assert {name: size for name, size in sizes.items() if size > MAX_FILE} == {}


def test_functions_and_classes_are_short():
    wrong = []
    for path, tree in trees():
        for node in ast.walk(tree):
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                if lines > MAX_FUNCTION:
                    wrong.append(f"{where} {node.name} has {lines} lines")
                named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if node.name == "__init__" and len(named) - 1 > MAX_ARGUMENTS:
                    wrong.append(f"{where} a constructor takes {len(named) - 1} arguments")
            elif isinstance(node, ast.ClassDef):
                methods = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
                if len(methods) > MAX_METHODS:
                    wrong.append(f"{where} {node.name} has {len(methods)} methods")
    assert wrong == []


def test_names_say_what_they_hold():
    assert [str(path) for path in SOURCES if path.name in BANNED_FILES] == []


def test_objects_are_not_asked_what_they_are():
    wrong = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                defaulted = node.func.id == "getattr" and len(node.args) == 3
                if node.func.id in BANNED_CALLS or defaulted:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert wrong == []


def test_nothing_is_caught_and_dropped():
    wrong = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                broad = node.type is None or (isinstance(node.type, ast.Name) and node.type.id.startswith("Exception"))
                if broad and all(isinstance(step, ast.Pass | ast.Continue) for step in node.body):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert wrong == []
