"""Prompts that are given as embeddings: matrices of JSON numbers, or of float32 in base64."""

import base64
import binascii
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.errors import InvalidRequestError
from sgl_runtime.ipc.request_parts import FloatRows
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.field_checks import checked_fields, checked_integer, kind_of


def is_embeds_list(value: Any) -> bool:
    """Whether a value holds a list of prompts, and not one."""
    if not isinstance(value, list) or not value:
        return False
    first = value[0]
    is_matrix = isinstance(first, list) and isinstance(next(iter(first), 0), list)
    return first is None or isinstance(first, dict) or is_matrix


def checked_embeds(path: str, value: Any) -> FloatRows:
    """The embeddings of one prompt.

    Args:
        path: The field.
        value: A list of rows of numbers, or `{"data": little-endian float32 in base64, "shape": [rows, numbers]}`.

    Raises:
        InvalidRequestError: it is something else, or a number is not finite.
    """
    matrix = _decoded(path, value) if isinstance(value, dict) else _numbers(path, value)
    if not len(matrix) or not matrix.shape[1]:
        raise InvalidRequestError(f"{path} holds no numbers; it must have a row for each position", param=path)
    wrong = np.argwhere(~np.isfinite(matrix))
    if len(wrong):
        row, column = wrong[0].tolist()
        where = f"{path}[{row}][{column}]"
        raise InvalidRequestError(f"{where} is {matrix[row, column]}; it must be a finite float32", param=where)
    return FloatRows(matrix.shape[1], matrix.tobytes())


def _decoded(path: str, value: dict[str, Any]) -> NDArray[np.float32]:
    fields = checked_fields(value, ("data", "shape"), path=path)
    shape = fields.get("shape")
    if not isinstance(shape, list) or len(shape) != 2:
        raise reject(f"{path}.shape", shape, "a list of two integers: rows, and numbers in a row")
    rows, size = (checked_integer(f"{path}.shape[{index}]", number, low=1) for index, number in enumerate(shape))
    data = fields.get("data")
    if not isinstance(data, str):
        raise reject(f"{path}.data", data, "little-endian float32 in base64")
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequestError(f"{path}.data is no base64: {error}", param=f"{path}.data") from error
    if len(raw) != 4 * rows * size:
        raise InvalidRequestError(
            f"{path}.data holds {len(raw)} bytes; {rows} rows of {size} float32 have {4 * rows * size}",
            param=f"{path}.data",
        )
    return np.frombuffer(raw, dtype="<f4").reshape(rows, size)


def _numbers(path: str, value: Any) -> NDArray[np.float32]:
    if not isinstance(value, list):
        raise reject(path, value, "a list of rows of numbers, or an object with data and shape")
    for index, row in enumerate(value):
        if not isinstance(row, list):
            raise InvalidRequestError(f"{path}[{index}] is {kind_of(row)}; it must be a row of numbers", param=path)
        if len(row) != len(value[0]):
            raise InvalidRequestError(
                f"{path}[{index}] has {len(row)} numbers; the first row has {len(value[0])}", param=f"{path}[{index}]"
            )
        if not set(map(type, row)) <= {int, float}:
            column = next(column for column, number in enumerate(row) if type(number) not in (int, float))
            raise reject(f"{path}[{index}][{column}]", row[column], "a number")
    try:
        # What is too large for float32 becomes infinite, and is refused as such.
        with np.errstate(over="ignore"):
            return np.array(value, dtype=np.float64).astype("<f4").reshape(len(value), -1 if value else 0)
    except OverflowError as error:
        raise InvalidRequestError(f"{path} holds a number that is too large for float32", param=path) from error
