"""What messages about requests hold: turns of sessions, processors of logits, rows of numbers."""

import msgspec


class SessionTurn(msgspec.Struct, frozen=True, kw_only=True):
    """How a request goes on in a session.

    Attributes:
        id: The session.
        rid: The turn that it follows; None for the latest.
        offset: How many of that turn's tokens stay in front of its own, counted from the end where negative; None for
            all.
        replace: Forget the turns that follow that turn; without `rid`, forget all turns and follow none.
        drop_previous_output: Follow that turn's prompt alone.
        num_bos: How many of the request's own first ids begin a sequence; left out where it follows a turn.
    """

    id: str
    rid: str | None = None
    offset: int | None = None
    replace: bool = False
    drop_previous_output: bool = False
    num_bos: int = 0


class LogitProcessorCall(msgspec.Struct, frozen=True, kw_only=True):
    """A processor of logits that a request asks for.

    Attributes:
        name: A name that the server was started with, or a pickled callable in hexadecimal digits.
        is_pickled: Which of the two.
        params: JSON text of the object that the processor is given for this request.
    """

    name: str
    is_pickled: bool = False
    params: str = "{}"


class FloatRows(msgspec.Struct, frozen=True, array_like=True):
    """Rows of numbers, one after another: hidden states, embeddings, vectors.

    Attributes:
        size: Numbers of a row.
        data: The rows as little-endian float32.
    """

    size: int
    data: bytes

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.data) // (4 * self.size)
