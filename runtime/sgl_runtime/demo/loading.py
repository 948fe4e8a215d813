"""Loads the engine of the demo, and shows meanwhile how far it is."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sgl_runtime.config import RuntimeConfig
from sgl_runtime.config_values import bound_thread_spinning
from sgl_runtime.serving.factories import Factories, ServedHost, ServedParts

if TYPE_CHECKING:
    from sgl_runtime.engine import Engine

_STAGES = ("importing libraries", "reading the tokenizer", "loading the weights")


@dataclass(frozen=True, kw_only=True)
class StagedFactories(Factories):
    """The usual factories, which say when they begin.

    Attributes:
        begin: Called at the beginning of a stage, with its number in the display.
    """

    begin: Callable[[int], None]

    def build_host(self, config: RuntimeConfig) -> ServedHost:
        """Read the model's files and its tokenizer."""
        self.begin(1)
        host = super().build_host(config)
        # Asked for, it is read.
        _ = host.tokenizer
        return host

    def build_scheduler(self, config: RuntimeConfig, host: ServedHost) -> ServedParts:
        """Load the weights."""
        self.begin(2)
        return super().build_scheduler(config, host)


def load_engine(model_path: str, console: Console) -> "Engine":
    """Load a model, with a bar of the stages in a terminal; one line at the end says how long each of them took.

    Args:
        model_path: As for `Engine`.
        console: Where to show it.

    Raises:
        ModelLoadError: the model cannot be found or read.
    """
    starts: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(model_path, total=len(_STAGES))

        def begin(stage: int) -> None:
            starts.append(time.monotonic())
            progress.update(task, description=f"{model_path}: {_STAGES[stage]}", completed=stage)

        begin(0)
        # Nearly all of the imports' time is here; left to the factories it would count as time of the tokenizer.
        bound_thread_spinning()
        import_module("sgl_runtime.model_runner.build")
        import_module("sgl_runtime.composition")
        engine_class: type[Engine] = import_module("sgl_runtime.engine").Engine
        engine = engine_class(model_path, factories=StagedFactories(begin=begin))
    ends = [*starts[1:], time.monotonic()]
    spans = [f"{end - start:.1f} s {stage}" for stage, start, end in zip(_STAGES, starts, ends, strict=True)]
    console.print(f"Loaded {model_path}: {', '.join(spans)}.", highlight=False)
    return engine
