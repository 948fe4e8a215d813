"""DateHeader: the header that says when a reply was made."""

import time
from email.utils import formatdate


class DateHeader:
    """Writes the time, once a second at most."""

    def __init__(self) -> None:
        self._second = 0
        self._headers: list[tuple[bytes, bytes]] = []

    def now(self) -> list[tuple[bytes, bytes]]:
        """The header, as the only one of a list that is not to be changed."""
        second = int(time.time())
        if second != self._second:
            self._second, self._headers = second, [(b"date", formatdate(second, usegmt=True).encode())]
        return self._headers
