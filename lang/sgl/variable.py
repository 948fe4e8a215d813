"""Variable: the place that a gen, a select, an assignment or a join fills; VariableTable: those of a program."""

from dataclasses import dataclass, field
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

    Attributes:
        text: What was generated so far; the raw text of a value that is not a string.
        meta: The backend's meta info.
        has_whole_text: Whether all text is there, also where no value could be made of it.
        is_text: Whether the value is, or was made of, the text.
    """

    def __init__(self, name: str | None, *, is_gathered: bool = False) -> None:
        self.name = name
        self.is_gathered = is_gathered
        self.status = VariableStatus.PENDING
        self.text = ""
        self.meta: dict[str, Any] = {}
        self.has_whole_text = False
        self.is_text = False
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

    def finish(self, value: Any, meta: dict[str, Any], *, text: str | None = None) -> None:
        """Take the value.

        Args:
            value: The value.
            meta: Meta info.
            text: The text that it was made of; None where the value is its own text, or has none.
        """
        assert not self.is_settled, f"{self.name}: finish while {self.status.name}"
        self.status = VariableStatus.DONE
        self._value = value
        self.text = text if text is not None else value if isinstance(value, str) else ""
        self.has_whole_text = True
        self.is_text = text is not None or isinstance(value, str)
        self.meta = meta

    def finish_unreadable(self, error: SglError, meta: dict[str, Any], *, text: str) -> None:
        """Take a whole text of which no value could be made; the state goes on, reading the value raises."""
        assert not self.is_settled, f"{self.name}: finish while {self.status.name}"
        self.text, self.meta, self.has_whole_text, self.is_text = text, meta, True, True
        self.fail(error)

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

    def settled_meta(self) -> dict[str, Any]:
        """The meta info of a settled variable, a copy.

        Raises:
            SglError: it failed before its text was whole.
        """
        if self._error is not None and not self.has_whole_text:
            raise self._error.with_traceback(None)
        return dict(self.meta)


@dataclass
class VariableTable:
    """The variables that a program knows in a state.

    Attributes:
        by_name: In the order of the program; pending ones too.
        inherited: Those that it knew where it began.
    """

    by_name: dict[str, Variable] = field(default_factory=dict)
    inherited: dict[str, Variable] = field(default_factory=dict)

    def branch(self) -> "VariableTable":
        """The table of a fork: it begins with these."""
        return VariableTable(dict(self.by_name), dict(self.by_name))

    def made(self) -> dict[str, Variable]:
        """Those that are new since it began."""
        return {name: variable for name, variable in self.by_name.items() if self.inherited.get(name) is not variable}
