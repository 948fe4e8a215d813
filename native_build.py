"""Compiles the compiler of JSON Schemas to machine code, with mypyc."""

import ast
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mypyc.build import mypycify
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

from sgl_runtime.native_modules import MADE_OF, hash_of

_ROOT = Path(__file__).resolve().parent
_PACKAGE = _ROOT / "runtime" / "sgl_runtime"
# Where compilations of schemas spend their time; automata of strings and numbers are made once, mostly by numpy.
_GRAMMAR = ("builder", "table_parts")
_NOT_OF_JSON_SCHEMA = (
    "__init__", "address_formats", "char_strings", "formats", "json_spelling", "number_bounds", "number_multiples",
    "number_scalars", "number_text", "numbers", "relaxing", "resource_formats", "string_parts", "strings", "tags",
)  # fmt: skip
_GROUP = "sgl_runtime.grammar.json_schema_group"


def compile_modules(target: Path) -> None:
    """Compile to a folder, which must not exist.

    Raises:
        SystemExit: mypyc refuses a source.
        CompileError: the C compiler does.
    """
    sources = _sources()
    # Modules are named by where they stand below the current folder, in tracebacks too.
    with TemporaryDirectory() as folder, chdir(_ROOT):
        os.environ["MYPYPATH"] = "runtime"
        flags = [
            "--explicit-package-bases",
            "--ignore-missing-imports",
            "--config-file=",
            f"--cache-dir={folder}/types",
        ]
        extensions = mypycify(
            [*flags, *(str(source.relative_to(_ROOT)) for source in sources)],
            opt_level="1",
            debug_level="0",
            multi_file=True,
            target_dir=f"{folder}/c",
            group_name=_GROUP,
        )
        for each in extensions:
            # There are the headers of a group with such a name.
            each.include_dirs.append(f"{folder}/c/sgl_runtime/grammar")
        _compile(extensions, folder)
        shutil.copytree(f"{folder}/out/sgl_runtime", target)
    hashes = {str(source.relative_to(_PACKAGE)): hash_of(source) for source in _with_imported(sources)}
    (target / MADE_OF).write_text(json.dumps({"suffix": EXTENSION_SUFFIXES[0], "sources": hashes}, indent=1))


class _BuildInParallel(build_ext):
    def build_extensions(self) -> None:
        compile_one_by_one = self.compiler.compile

        def compile_all(sources: Sequence[str], *args: Any, **options: Any) -> list[str]:
            def compile_one(source: str) -> list[str]:
                return compile_one_by_one([source], *args, **options)

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return [each for made in pool.map(compile_one, sources) for each in made]

        self.compiler.compile = compile_all
        super().build_extensions()


def _compile(extensions: list[Extension], folder: str) -> None:
    command = _BuildInParallel(Distribution({"name": "sgl", "ext_modules": extensions}))
    command.build_lib, command.build_temp = f"{folder}/out", f"{folder}/objects"
    command.ensure_finalized()
    command.run()


def _sources() -> list[Path]:
    grammar = _PACKAGE / "grammar"
    json_schema = [each for each in (grammar / "json_schema").glob("*.py") if each.stem not in _NOT_OF_JSON_SCHEMA]
    return sorted([*(grammar / f"{name}.py" for name in _GRAMMAR), *json_schema])


def _with_imported(sources: list[Path]) -> Iterator[Path]:
    """Some sources and those that they import, each once."""
    imported = {
        _ROOT / "runtime" / f"{node.module.replace('.', '/')}.py"
        for source in sources
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    yield from sources
    yield from sorted(each for each in imported - set(sources) if each.is_file())
