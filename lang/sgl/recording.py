"""Recording: what the model saw and said, node by node, kept while `with sgl.record()` or `run(record=True)` is on."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sgl.ir import Gen, Node, RoleBegin, RoleEnd, Select
from sgl.variable import Variable

FORMAT_VERSION = 1
COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "forced_tokens", "grammar_compile_time", "e2e_latency")


@dataclass
class NodeRecord:
    """What one node of a state did.

    Attributes:
        kind: "text", "role", "gen", "select" or "joined" (text of a joined branch).
        text: What it appended to the state.
        started_s, ended_s: Seconds since the recording began.
        name, source: Variable and `file:line` of a gen or select.
        constraint: Kind and text of what a gen's output had to match.
        sampling_params: What was sent.
        prompt_ids, output_ids: The exact token ids.
        finish_reason: Why a gen ended.
        counts: Token counts and times as the backend gave them.
        tokens: `[log probability, id, text]` of each output token, where they were asked for.
        choices: `{"text", "score", "probability"}` of each choice of a select.
        error: Why it failed.
    """

    kind: str
    text: str
    started_s: float
    ended_s: float
    name: str | None = None
    source: str | None = None
    constraint: dict[str, str] | None = None
    sampling_params: dict[str, Any] | None = None
    prompt_ids: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)
    finish_reason: dict[str, Any] | None = None
    counts: dict[str, Any] = field(default_factory=dict)
    tokens: list[list[Any]] = field(default_factory=list)
    choices: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None


@dataclass
class StateRecord:
    """The nodes of one state.  Filled under the run's lock.

    Attributes:
        index: Its number in the run; the run's own state is 0.
        parent: The number of the state that it was forked from.
        nodes: In order.
    """

    index: int
    parent: int | None
    nodes: list[NodeRecord] = field(default_factory=list)


@dataclass
class RunRecord:
    """The states of one run.

    Attributes:
        program: Name of the program.
        states: In the order in which they began.
    """

    program: str
    states: list[StateRecord] = field(default_factory=list)


class Recording:
    """Takes what runs do; `save` and `html` write it.

    Attributes:
        runs: In the order in which they began.
        started_at: When the recording began.
    """

    def __init__(self) -> None:
        self.runs: list[RunRecord] = []
        self.started_at = datetime.now(UTC)
        self._zero = time.monotonic()
        self._lock = threading.Lock()

    def new_run(self, program: str) -> "RunRecorder":
        """A run begins."""
        run = RunRecord(program)
        with self._lock:
            self.runs.append(run)
        return RunRecorder(run, self._zero)

    def to_dict(self) -> dict[str, Any]:
        """The recording as JSON data."""
        with self._lock:
            runs = list(self.runs)
        return {
            "version": FORMAT_VERSION,
            "started_at": self.started_at.isoformat(),
            "runs": [asdict(run) for run in runs],
        }

    def save(self, path: str | Path) -> None:
        """Write the recording as JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), ensure_ascii=False, indent=1), encoding="utf-8")

    def html(self, path: str | Path) -> None:
        """Write the recording as one page that needs nothing else: timelines, coloured text, probabilities."""
        # Imported here: recordings that are only saved do not pay for loading it.
        from sgl.recording_page import page

        Path(path).write_text(page(self.to_dict()), encoding="utf-8")


class RunRecorder:
    """Writes the record of one run.

    Args:
        run: The record.
        zero: `time.monotonic()` when the recording began.
    """

    def __init__(self, run: RunRecord, zero: float) -> None:
        self._run = run
        self._zero = zero

    def new_state(self, parent: "StateRecorder | None") -> "StateRecorder":
        """A state begins; called under the run's lock."""
        state = StateRecord(len(self._run.states), parent.index if parent is not None else None)
        self._run.states.append(state)
        return StateRecorder(state, self._zero)


class StateRecorder:
    """Writes the record of one state; called under the run's lock.

    Args:
        state: The record.
        zero: `time.monotonic()` when the recording began.
    """

    def __init__(self, state: StateRecord, zero: float) -> None:
        self._state = state
        self._zero = zero

    @property
    def index(self) -> int:
        """Number of the state in its run."""
        return self._state.index

    def now_s(self) -> float:
        """Seconds since the recording began."""
        return time.monotonic() - self._zero

    def text(self, text: str, *, kind: str = "text") -> None:
        """Constant text was appended; what stands behind other constant text continues it."""
        now = self.now_s()
        last = self._state.nodes[-1] if self._state.nodes else None
        if last is not None and last.kind == kind == "text":
            last.text += text
            last.ended_s = now
        else:
            self._state.nodes.append(NodeRecord(kind, text, now, now))

    def node(self, node: Node, variable: Variable | None, text: str, started_s: float) -> NodeRecord:
        """A node has run."""
        record = NodeRecord(_kind(node), text, started_s, self.now_s())
        if isinstance(node, Gen | Select):
            assert variable is not None, "gens and selects have variables"
            record.name, record.source = node.name, node.source
            _describe_call(record, variable.meta)
            if variable.error is not None:
                record.error = str(variable.error)
        if isinstance(node, Gen) and node.constraint is not None:
            record.constraint = {"kind": node.constraint.kind, "text": node.constraint.text}
        self._state.nodes.append(record)
        return record


def _kind(node: Node) -> str:
    if isinstance(node, RoleBegin | RoleEnd):
        return "role"
    return "gen" if isinstance(node, Gen) else type(node).__name__.lower()


def _describe_call(record: NodeRecord, meta: dict[str, Any]) -> None:
    record.sampling_params = meta.get("sampling_params")
    record.finish_reason = meta.get("finish_reason")
    record.counts = {name: meta[name] for name in COUNTS if meta.get(name) is not None}
    record.tokens = [list(token) for token in meta.get("output_token_logprobs", ())]
    if "probabilities" in meta:
        columns = zip(meta["choices"], meta["scores"], meta["probabilities"], strict=True)
        record.choices = [{"text": text, "score": score, "probability": share} for text, score, share in columns]


# Where `with sgl.record()` is on; like the default backend it holds for a context and whatever is started from it.
_current: ContextVar[Recording | None] = ContextVar("sgl_recording", default=None)


@contextmanager
def record() -> Iterator[Recording]:
    """`with sgl.record() as r:` records every run that begins inside; afterwards `r.save(...)` and `r.html(...)`."""
    recording = Recording()
    token = _current.set(recording)
    try:
        yield recording
    finally:
        _current.reset(token)


def current_recording() -> Recording | None:
    """The recording that is on; None where there is none."""
    return _current.get()
