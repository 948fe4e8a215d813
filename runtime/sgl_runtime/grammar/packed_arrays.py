"""Arrays with a small JSON object beside them, as bytes: what compiled grammars are kept and sent as.

No code is ever read from such bytes, and a digest tells whether they are whole.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

_MAGIC = b"SGLARRAY1\n"
_LENGTH_BYTES = 8
_DIGEST_BYTES = hashlib.sha256().digest_size
_DTYPES = frozenset({"bool", "uint8", "int32", "int64"})


class PackedDataError(ValueError):
    """The bytes are not what `pack` wrote."""


def pack(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Write facts, which JSON can express, and arrays of bool, uint8, int32 or int64."""
    listed = []
    for name, array in arrays.items():
        assert array.dtype.name in _DTYPES, f"{name} is an array of {array.dtype}"
        listed.append([name, array.dtype.name, array.shape])
    header = json.dumps({"facts": facts, "arrays": listed}).encode()
    parts = [_MAGIC, len(header).to_bytes(_LENGTH_BYTES, "little"), header]
    parts += [np.ascontiguousarray(array).tobytes() for array in arrays.values()]
    body = b"".join(parts)
    return body + hashlib.sha256(body).digest()


def unpack(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """Read what `pack` wrote.

    Raises:
        PackedDataError: the bytes are damaged, cut off, or of another kind.
    """
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if not body.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
        raise PackedDataError("the data are damaged or of another format")
    begin = len(_MAGIC) + _LENGTH_BYTES
    end = begin + int.from_bytes(body[len(_MAGIC) : begin], "little")
    header = json.loads(body[begin:end])
    arrays: Arrays = {}
    for name, dtype, shape in header["arrays"]:
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(body, dtype=dtype, count=count, offset=end).reshape(shape).copy()
        end += arrays[name].nbytes
    return header["facts"], arrays
