"""What a model's vectors become in replies: embeddings of length 1, probabilities, scores."""

import base64

import numpy as np
from numpy.typing import NDArray

from sgl_runtime.errors import InvalidRequestError, RequestAbortedError
from sgl_runtime.model_info import PoolingInfo, ScoreActivation
from sgl_runtime.sampling_params import reject
from sgl_runtime.server.pending_reply import PendingReply

FloatVector = NDArray[np.float32]

_TINY = 1e-12
"""Least length that a vector is divided by."""


def raw_vector(pending: PendingReply) -> FloatVector:
    """The vector of a request that has ended, as the model gave it.

    Raises:
        RequestAbortedError: the request was aborted.
    """
    if pending.vector is None:
        finish = None if pending.last is None else pending.last.finish
        raise RequestAbortedError((finish and finish.message) or "the request was aborted")
    return np.frombuffer(pending.vector.data, dtype="<f4")


def embedding(pending: PendingReply, pooling: PoolingInfo, dimensions: int | None = None) -> FloatVector:
    """The vector of a request, normed as the model asks for.

    Args:
        pending: The request.
        pooling: What the model does.
        dimensions: Keep so many numbers, and bring what is left to length 1; None for all.

    Raises:
        RequestAbortedError: the request was aborted.
    """
    vector = raw_vector(pending)[:dimensions]
    return normed(vector) if pooling.normalizes or dimensions is not None else vector


def normed(vector: FloatVector) -> FloatVector:
    """The vector brought to length 1."""
    out: FloatVector = vector / max(float(np.linalg.norm(vector)), _TINY)
    return out


def cosine(first: FloatVector, second: FloatVector) -> float:
    """The cosine of the angle between two vectors of length 1; rounding takes it to no value that none has."""
    return min(max(float(first @ second), -1.0), 1.0)


def checked_dimensions(value: object, pooling: PoolingInfo) -> int | None:
    """How many numbers of each vector are kept; None for all.

    Raises:
        InvalidRequestError: it is no number from 1 to what the model gives, or the numbers are those of classes.
    """
    if value is None:
        return None
    if pooling.labels is not None:
        raise InvalidRequestError(
            "dimensions is given; the numbers of a model with labels are not cut", param="dimensions"
        )
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= pooling.size:
        raise reject("dimensions", value, f"an integer from 1 to {pooling.size}, the size of the model's vectors")
    return value


def probabilities(logits: FloatVector, activation: ScoreActivation) -> NDArray[np.float64]:
    """What the numbers of a classifying head mean."""
    wide = logits.astype(np.float64)
    if activation == "softmax":
        powers: NDArray[np.float64] = np.exp(wide - wide.max())
        powers /= powers.sum()
        return powers
    if activation == "sigmoid":
        # The power is of a negative number, so that it does not overflow.
        share = 1 / (1 + np.exp(-np.abs(wide)))
        return np.where(wide >= 0, share, 1 - share)
    return wide


def as_base64(vector: FloatVector) -> str:
    """Little-endian float32 in base64."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
