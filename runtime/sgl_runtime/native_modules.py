"""Modules compiled to machine code by `native_build.py`, taken in place of their sources as long as these are the same.

They lie in a folder of their own, so that a source that was changed after it was compiled is never hidden: then all
modules run from their sources.
"""

import hashlib
import json
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from sgl_runtime.config_values import allows_native_modules

_PACKAGE = Path(__file__).parent
FOLDER = "_native"
MADE_OF = "made_of.json"
"""In the folder: `sources`, hashes of what was compiled and of what that imports, by path; `suffix` of the files."""


def native_folders(package: str) -> list[str]:
    """Where to look for modules of a package before its own folder: one folder, or none.

    Args:
        package: The package's path below `sgl_runtime`.
    """
    return [str(_PACKAGE / FOLDER / package)] if allows_native_modules() and _all_fit() else []


def hash_of(source: Path) -> str:
    """What tells one text of a source from another."""
    return hashlib.sha256(source.read_bytes()).hexdigest()


def fits(package: Path, folder: Path) -> bool:
    """Whether there are compiled modules for this Python, and all sources are those that they were made of.

    Args:
        package: The folder of the sources.
        folder: That of the compiled modules.
    """
    try:
        made_of = json.loads((folder / MADE_OF).read_bytes())
        if made_of["suffix"] not in EXTENSION_SUFFIXES:
            return False
        return all(hash_of(package / source) == its_hash for source, its_hash in made_of["sources"].items())
    except (OSError, ValueError, KeyError):
        return False


@cache
def _all_fit() -> bool:
    return fits(_PACKAGE, _PACKAGE / FOLDER)
