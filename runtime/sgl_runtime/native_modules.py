"""Modules compiled to machine code by `native_build.py`, taken in place of their sources as long as these are the same.

They lie in a folder of their own, so that a source that was changed after it was compiled is never hidden: then all
modules run from their sources.
"""

import hashlib
import json
from functools import cache
from pathlib import Path

from sgl_runtime.config_values import allows_native_modules

_PACKAGE = Path(__file__).parent
FOLDER = "_native"
SOURCES = "sources.json"
"""In the folder: the hashes of the sources that were compiled, and of those that they import, by their paths."""


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
    """Whether there are compiled modules, and all sources are those that they were made of.

    Args:
        package: The folder of the sources.
        folder: That of the compiled modules.
    """
    try:
        hashes = json.loads((folder / SOURCES).read_bytes())
        return all(hash_of(package / source) == made_of for source, made_of in hashes.items())
    except (OSError, ValueError):
        return False


@cache
def _all_fit() -> bool:
    return fits(_PACKAGE, _PACKAGE / FOLDER)
