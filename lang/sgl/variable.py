"""Variable: the place that a gen, a select, an assignment or a join fills."""

from enum import Enum
from typing import Any

from sgl.errors import SglError


class VariableStatus(Enum):
    """A variable is pending until it is done or failed."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"


class Variable:
    """One value of a program, shared by a state and its forks.  Changes happen under the run's lock.

    Args:
        name: Name in the program; None for a gen without one.
        is_gathered: Whether a join made it, so that a later join may replace it.
    """

    def __init__(self, name: str | None, *, is_gathered: bool = False) -> None:
        self.name = name
        self.is_gathered = is_gathered
        self.status = VariableStatus.PENDING
        self.text = ""
        self.meta: dict[str, Any] = {}
        self._value: Any = None
        self._error: SglError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it is done or failed."""
        return self.status is not VariableStatus.PENDING

    def grow(self, text: str, meta: dict[str, Any]) -> None:
        """Take the output so far of a gen that goes on."""
        assert not self.is_settled, f"{self.name}: grow while {self.status.name}"
        self.text = text
        self.meta = meta

    def finish(self, value: Any, meta: dict[str, Any]) -> None:
        """Take the value."""
        assert not self.is_settled, f"{self.name}: finish while {self.status.name}"
        self.status = VariableStatus.DONE
        self._value = value
        self.text = value if isinstance(value, str) else ""
        self.meta = meta

    def fail(self, error: SglError) -> None:
        """Take the reason why there will be no value; no change where there is one."""
        if not self.is_settled:
            self.status = VariableStatus.FAILED
            self._error = error

    @property
    def error(self) -> SglError | None:
        """Why there is no value; None where there is one or may be."""
        return self._error

    @property
    def value(self) -> Any:
        """The value of a settled variable.

        Raises:
            SglError: it failed; always the same object.
        """
        assert self.is_settled, f"{self.name}: read while {self.status.name}"
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._value
