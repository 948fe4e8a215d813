"""The errors of the language, all under `SglError`.

`ArgumentError` (also a ValueError): a value given to the language is wrong; `UnsupportedError`: the backend cannot do
it.  `UnknownVariableError` (also a KeyError): a state has no such variable.  `ProgramError`: a program failed; it names
program, variable and source line.  `ResultError`: a variable's text is no value of its type; `TruncatedError`: because
it was cut.  `BackendError`: the backend refused or broke; it carries the protocol's status, code and param.
"""


class SglError(Exception):
    """Root of every error that the language raises on purpose."""


class ArgumentError(SglError, ValueError):
    """A value is wrong; the message names it, shows it and says what is allowed."""


class UnsupportedError(ArgumentError):
    """The backend cannot do what a program asks for; the message names backend and feature."""


class UnknownVariableError(SglError, KeyError):
    """A state holds no variable of this name; the message lists those it holds."""

    def __str__(self) -> str:
        return str(self.args[0])


class TraceError(SglError):
    """A program cannot be traced further: it decides by a value that a trace does not know."""


class ProgramError(SglError):
    """A program failed.  Every access to the failed state raises this same object.

    The original exception is `__cause__`.

    Attributes:
        program: Name of the program.
        variable: Variable of the gen or select that failed, None where it has none.
        source: `file:line` of the expression or statement that failed, None where it is not known.
    """

    def __init__(self, message: str, *, program: str, variable: str | None = None, source: str | None = None) -> None:
        super().__init__(message)
        self.program = program
        self.variable = variable
        self.source = source


class ResultError(ProgramError):
    """No value of the wanted type could be made of an output.  The state goes on; reading the variable raises this.

    Attributes:
        text: The output as it is.
    """

    def __init__(
        self, message: str, *, program: str, variable: str | None, source: str | None = None, text: str = ""
    ) -> None:
        super().__init__(message, program=program, variable=variable, source=source)
        self.text = text


class TruncatedError(ResultError):
    """The output was cut at its limit of tokens before it was complete."""


class BackendError(SglError):
    """The backend refused a request, answered nonsense or cannot be reached.

    Attributes:
        status: HTTP status of the reply, None where there was none.
        code: The protocol's short word (`bad_grammar`, `context_length_exceeded`, ...), None where there was none.
        param: Path of the request field at fault, None where no field is.
    """

    def __init__(
        self, message: str, *, status: int | None = None, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


def reject(name: str, value: object, allowed: str) -> ArgumentError:
    """The error for argument `name` that holds `value` where `allowed` was expected."""
    shown = repr(value)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return ArgumentError(f"{name} is {shown}; it must be {allowed}")
