"""RunOptions: the keywords of `run`, `run_batch` and `options`, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from sgl.backends.base import Backend
from sgl.default_backend import as_backend
from sgl.errors import reject
from sgl.ir import Concat, Role, RoleBegin, RoleEnd, Text
from sgl.sampling import SAMPLING_FIELDS, SamplingParams, check_sampling

ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a program is run.

    Attributes:
        sampling: Settings for gens that do not say their own.
        backend: Takes the calls; the default backend if None.
        stream: Hand out the state at once, run the body beside the caller, and stream every gen.
        use_thread: False: appending waits until what was appended has run, and raises there.
        record: Keep what the run does in `state.recording`.
        start: What the state begins with.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    backend: Backend | None = None
    stream: bool = False
    use_thread: bool = True
    record: bool = False
    start: Concat = field(default_factory=lambda: Concat(()))

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
        if "messages" in given:
            changes["start"] = _dialogue(given["messages"])
        for name in ("stream", "use_thread", "record"):
            if name in given:
                if not isinstance(given[name], bool):
                    raise reject(name, given[name], "True or False")
                changes[name] = given[name]
        return replace(self, **changes)


def _dialogue(messages: Any) -> Concat:
    if not isinstance(messages, list | tuple):
        raise reject("messages", messages, "a list of messages, {'role': ..., 'content': ...} each")
    nodes: list[RoleBegin | RoleEnd | Text] = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or message.keys() != {"role", "content"}:
            raise reject(f"messages[{index}]", message, "a dict with 'role' and 'content'")
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise reject(f"messages[{index}]['role']", role, "one of " + ", ".join(map(repr, ROLES)))
        if not isinstance(content, str):
            raise reject(f"messages[{index}]['content']", content, "a string")
        nodes += [RoleBegin(role), *([Text(content)] if content else []), RoleEnd(role)]
    return Concat(tuple(nodes))


RUN_OPTIONS = (*SAMPLING_FIELDS, "backend", "stream", "use_thread", "record", "messages")
