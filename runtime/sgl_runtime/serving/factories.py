"""Factories: how a process gets the parts that hold the model.

Named by import path, so that a spawned process needs only their names, and tests can serve a scripted model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any, Protocol

from sgl_runtime.config import RuntimeConfig
from sgl_runtime.ipc.messages import SchedulerInput, SchedulerOutput
from sgl_runtime.model_info import PoolingInfo
from sgl_runtime.server.prompt_tokenizer import PromptTokenizer


class ServedHost(Protocol):
    """The host side of a model."""

    @property
    def tokenizer(self) -> PromptTokenizer:
        """The served tokenizer; it may be read when it is first asked for."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end an output."""

    @property
    def vocab_size(self) -> int:
        """Number of logits."""

    @property
    def hidden_size(self) -> int:
        """Numbers of a token's embedding."""

    @property
    def pooling(self) -> PoolingInfo | None:
        """What a model that generates nothing does with a text; None for one that generates."""


class ServedScheduler(Protocol):
    """A scheduler as its loop sees it."""

    def accept(self, message: SchedulerInput) -> list[SchedulerOutput]:
        """Take one message."""

    def step(self) -> list[SchedulerOutput]:
        """Run one pass, if there is one to run."""

    def has_work(self) -> bool:
        """Whether any request is on its way."""

    def check(self) -> None:
        """Account for everything held; an AssertionError says what is lost."""

    def close(self) -> None:
        """Stop what works in the background, for good."""


class ServedParts(Protocol):
    """A scheduler and what the API must know of its model."""

    @property
    def scheduler(self) -> ServedScheduler:
        """The scheduler, ready to serve."""

    @property
    def facts(self) -> dict[str, Any]:
        """Effective settings; `context_length` and `weight_dtype` are among them."""


@dataclass(frozen=True, kw_only=True)
class Factories:
    """Import paths, `module:attribute`.

    Attributes:
        host: Takes a RuntimeConfig, gives a ServedHost.
        scheduler: Takes a RuntimeConfig and that host, gives ServedParts.
    """

    host: str = "sgl_runtime.composition:ModelHost.open"
    scheduler: str = "sgl_runtime.composition:build_scheduler"

    def build_host(self, config: RuntimeConfig) -> ServedHost:
        """Find the model, and what of it needs no tensors."""
        host: ServedHost = _load(self.host)(config)
        return host

    def build_scheduler(self, config: RuntimeConfig, host: ServedHost) -> ServedParts:
        """Load the weights."""
        parts: ServedParts = _load(self.scheduler)(config, host)
        return parts


def _load(path: str) -> Callable[..., Any]:
    module, _, attribute = path.partition(":")
    factory: Callable[..., Any] = attrgetter(attribute)(import_module(module))
    return factory
