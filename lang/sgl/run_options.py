"""RunOptions: the keywords of `run`, `run_batch` and `options`, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sgl.backends.base import Backend
from sgl.default_backend import as_backend
from sgl.errors import reject
from sgl.sampling import SAMPLING_FIELDS, SamplingParams, check_sampling


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a program is run.

    Attributes:
        sampling: Settings for gens that do not say their own.
        backend: Takes the calls; the default backend if None.
        stream: Run the body in a thread of its own and stream every gen.
        use_thread: False: appending waits until what was appended has run, and raises there.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    backend: Backend | None = None
    stream: bool = False
    use_thread: bool = True

    def updated(self, values: Mapping[str, Any]) -> "RunOptions":
        """These options with some replaced.

        Args:
            values: Names from `RUN_OPTIONS` to values; None leaves an option as it is.
        """
        given = {name: value for name, value in values.items() if value is not None}
        sampling = check_sampling({name: value for name, value in given.items() if name in SAMPLING_FIELDS})
        changes: dict[str, Any] = {"sampling": sampling.over(self.sampling)}
        if "backend" in given:
            changes["backend"] = as_backend(given["backend"])
        for name in ("stream", "use_thread"):
            if name in given:
                if not isinstance(given[name], bool):
                    raise reject(name, given[name], "True or False")
                changes[name] = given[name]
        return replace(self, **changes)


RUN_OPTIONS = (*SAMPLING_FIELDS, "backend", "stream", "use_thread")
