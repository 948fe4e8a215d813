"""The backend that programs use when none is named.

Set in a context (a task, a thread with a copied context) it holds there; elsewhere the latest one set anywhere holds,
so threads and notebook cells that start with an empty context find it too.

Besides this context variable and the holder of the latest one, the language keeps three things for the whole process:
here, what is known of the models of engines, so that `run(backend=engine)` asks once and not in every run; the event
loop thread (`event_loop.py`); and the settings that programs know as `global_config` (`process_config.py`).
"""

from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from sgl.backends.base import Backend
from sgl.backends.engine import EngineBackend
from sgl.backends.launch import Runtime
from sgl.backends.model_facts import ModelFacts
from sgl.backends.native import Transport
from sgl.errors import SglError, reject


class _Latest:
    """The backend set last, in any context."""

    backend: Backend | None = None


_latest = _Latest()
# The wrappers themselves hold their engines, so keeping those would keep every engine for ever.
_facts_of_engines: WeakKeyDictionary[Transport, ModelFacts] = WeakKeyDictionary()
_default_backend: ContextVar[Backend | None] = ContextVar("sgl_default_backend", default=None)


def set_default_backend(backend: Any) -> None:
    """Use this backend for programs that are run without `backend=`.

    Args:
        backend: A backend, a `Runtime`, or an `Engine` of this process.
    """
    checked = as_backend(backend)
    _default_backend.set(checked)
    _latest.backend = checked


def resolve_backend(backend: Any | None) -> Backend:
    """The backend given, or the default one.

    Raises:
        SglError: none is given and none was set.
        ArgumentError: the object is no backend.
    """
    if backend is not None:
        return as_backend(backend)
    default = default_backend_or_none()
    if default is None:
        raise SglError("no backend: call sgl.set_default_backend(...), or pass backend=... to run")
    return default


def default_backend_or_none() -> Backend | None:
    """The default backend; None where none was set."""
    return _default_backend.get() or _latest.backend


def as_backend(backend: Any) -> Backend:
    """A backend from what users hold: a backend, a `Runtime`, or an engine, which is wrapped."""
    if isinstance(backend, Backend):
        return backend
    if isinstance(backend, Runtime):
        return backend.endpoint
    if isinstance(backend, Transport):
        return EngineBackend(backend, facts=_facts_of_engines.setdefault(backend, ModelFacts()))
    raise reject("backend", backend, "a backend such as RuntimeEndpoint, a Runtime, or an Engine")
