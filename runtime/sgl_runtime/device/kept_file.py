"""Files that a start leaves for the next one."""

import os
import tempfile
from pathlib import Path


def keep_file(path: Path, content: bytes) -> None:
    """Write a file in one step: whoever reads it meanwhile finds all of it, or what was there before.

    Raises:
        OSError: its folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.replace(file.name, path)
