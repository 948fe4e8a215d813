"""What a safetensors file says of its tensors: where they lie, of which type and shape.

Source: the format's description, https://github.com/huggingface/safetensors: eight bytes that hold the length of the
header, then the header in JSON, then the numbers.
"""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StoredEntry:
    """One tensor of a file.

    Attributes:
        name: Its name.
        dtype: Its type, as the format names it.
        shape: Its shape.
        offset: Where in the file its numbers begin, in bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


def read_header(path: Path) -> list[StoredEntry]:
    """The tensors of a file that is known to be whole, in the order in which they lie in it."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    entries = [
        StoredEntry(name, entry["dtype"], tuple(entry["shape"]), 8 + length + entry["data_offsets"][0])
        for name, entry in header.items()
    ]
    return sorted(entries, key=lambda entry: entry.offset)
