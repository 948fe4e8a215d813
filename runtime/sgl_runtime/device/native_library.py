"""NativeLibrary: a vendor's library of C functions, called directly."""

import ctypes

from sgl_runtime.errors import SglRuntimeError


class LibraryError(SglRuntimeError):
    """A library is not there, or refused a call."""


class NativeLibrary:
    """A library whose functions return 0 where all went well.

    Args:
        file_name: As the system's loader finds it.
        title: What messages call it.

    Raises:
        LibraryError: it is not there.
    """

    def __init__(self, file_name: str, title: str) -> None:
        try:
            self.functions = ctypes.CDLL(file_name)
        except OSError as error:
            raise LibraryError(f"{title} cannot be loaded: {error}") from error

    def call(self, name: str, *args: object) -> None:
        """Call a function.

        Raises:
            LibraryError: it says that something went wrong.
        """
        status = getattr(self.functions, name)(*args)
        if status:
            raise LibraryError(f"{name} failed with status {status}")
