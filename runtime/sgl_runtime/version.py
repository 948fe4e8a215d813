"""The version of the installed distribution."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def distribution_version() -> str:
    """Version of distribution `sgl`; "unknown" when the packages run from a folder that was never installed."""
    try:
        return version("sgl")
    except PackageNotFoundError:
        return "unknown"
