"""DiskCache: compiled automata in files of the user's cache folder, so that a new start need not compile them again.

A key names everything that an automaton depends on.  Files are written beside their place and moved there at once, so
that any number of processes may share a folder; a file that is damaged is compiled anew.
"""

import hashlib
import json
import logging
import os
import tempfile
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.packed_arrays import Arrays, PackedDataError, pack, unpack

logger = logging.getLogger(__name__)

MAX_BYTES = 512 * 2**20
_SUFFIX = ".grammar"
_BYTES_BETWEEN_CLEANINGS = 32 * 2**20
# What decides only when a compilation is given up, and where it runs.
_NO_EFFECT_ON_AUTOMATA = {
    "grammar_backend",
    "max_grammar_depth",
    "grammar_cache_size",
    "grammar_compile_timeout",
    "grammar_compile_memory",
    "disable_grammar_disk_cache",
    "disable_jump_forward",
}


class AutomatonKeys:
    """Names of automata by what they depend on.

    Args:
        config: Policies of spelling.
        usable_bytes: (256,) bool, what the vocabulary can spell: all that an automaton knows of it.
    """

    def __init__(self, config: GrammarConfig, usable_bytes: NDArray[np.bool_]) -> None:
        policies = {
            name: value for name, value in msgspec.to_builtins(config).items() if name not in _NO_EFFECT_ON_AUTOMATA
        }
        self._context = json.dumps([policies, usable_bytes.tobytes().hex(), _compiler_digest()]).encode()

    def key(self, spec: GrammarSpec) -> str:
        """The name of a spec's automaton."""
        asked = json.dumps([spec.kind, spec.text, spec.lenient]).encode()
        return hashlib.sha256(self._context + b"\n" + asked).hexdigest()


class DiskCache:
    """Records by key; used by several threads and processes.

    Args:
        folder: Where the files lie; made when the first is written.
        max_bytes: What they may take together; those that were used least recently are removed.
    """

    def __init__(self, folder: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        # The first file that is written finds out what lies there from earlier starts.
        self._until_cleaning = 0
        self._is_broken = False

    def get(self, key: str) -> tuple[dict[str, Any], Arrays] | None:
        """A record, None where there is none."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)
            try:
                return unpack(data)
            except PackedDataError:
                logger.warning("a kept grammar is damaged, compiling anew file=%s", path)
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain(error)
        return None

    def put(self, key: str, facts: dict[str, Any], arrays: Arrays) -> None:
        """Keep a record; where that is not possible, only that it is not kept is noted."""
        data = pack(facts, arrays)
        if len(data) > self._max_bytes // 4:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write(self._path(key), data)
            self._until_cleaning -= len(data)
            if self._until_cleaning < 0:
                self._until_cleaning = min(_BYTES_BETWEEN_CLEANINGS, self._max_bytes // 4)
                self._remove_oldest()
        except OSError as error:
            self._complain(error)

    def _path(self, key: str) -> Path:
        return self._folder / (key + _SUFFIX)

    def _write(self, path: Path, data: bytes) -> None:
        descriptor, scratch = tempfile.mkstemp(dir=self._folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            Path(scratch).replace(path)
        except OSError:
            Path(scratch).unlink(missing_ok=True)
            raise

    def _remove_oldest(self) -> None:
        """Make room for a quarter of the limit."""
        entries = []
        for path in self._folder.iterdir():
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            entries.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self._max_bytes - self._max_bytes // 4:
                break
            path.unlink(missing_ok=True)
            total -= size

    def _complain(self, error: OSError) -> None:
        if not self._is_broken:
            self._is_broken = True
            logger.warning("compiled grammars are not kept on disk folder=%s error=%s", self._folder, error)


@lru_cache(maxsize=1)
def _compiler_digest() -> str:
    """What the compiler itself is: the sources of this package, and Python's tables of characters."""
    digest = hashlib.sha256(unicodedata.unidata_version.encode())
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
