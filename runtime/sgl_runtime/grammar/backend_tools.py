"""BackendTools: what the grammar backends of one compiler share."""

from dataclasses import dataclass
from threading import Event

from sgl_runtime.grammar.compile_workers import CompileWorkers
from sgl_runtime.grammar.disk_cache import DiskCache
from sgl_runtime.grammar.vocabulary_order import VocabularyOrder


@dataclass(frozen=True)
class BackendTools:
    """What backends work with.

    Attributes:
        order: The vocabulary, sorted.
        workers: Processes for heavy compilations.
        disk_cache: Where compiled automata are kept; None for nowhere.
        stop: Set when the runtime ends.
    """

    order: VocabularyOrder
    workers: CompileWorkers
    disk_cache: DiskCache | None
    stop: Event
