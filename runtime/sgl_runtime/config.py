"""RuntimeConfig: every start-up option, in one frozen section for each component.

`resolve_*` functions turn "auto" into a value once.  Command-line flags are made from these fields by `cli.py`.
"""

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from sgl_runtime.errors import ConfigError

ReasoningParserName = Literal[
    "deepseek-r1",
    "deepseek-v3",
    "glm45",
    "gpt-oss",
    "granite",
    "kimi",
    "kimi_k2",
    "mistral",
    "qwen3",
    "qwen3-thinking",
    "step3",
]


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """The HTTP process.

    Attributes:
        host: Address to listen on.
        port: TCP port to listen on.
        served_model_name: Name in /v1/models and in replies; the model path by default.
        chat_template: File with a Jinja chat template that replaces the model's own.
        reasoning_parser: How the model marks its thinking, told to programs that separate it.
        log_level: Least severe lines that the log shows.
    """

    host: str = "127.0.0.1"
    port: int = 30000
    served_model_name: str | None = None
    chat_template: str | None = None
    reasoning_parser: ReasoningParserName | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True, kw_only=True)
class ModelSection:
    """Which model, and how it is read.

    Attributes:
        model_path: `smollm2`, a folder, a `.gguf` file, or a hub id (owner/name).
        tokenizer_path: Folder of the tokenizer; the model's by default.
        revision: Branch, tag or commit of a hub id.
        dtype: Type of the weights in memory; auto takes float32 on a CPU.
        context_length: Limit on prompt and output together; the model's own by default.
    """

    model_path: str
    tokenizer_path: str | None = None
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    context_length: int | None = None


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """How requests are put together into passes.

    Attributes:
        max_running_requests: Most requests that decode together.
        max_prefill_tokens: Most uncached prompt tokens in one pass; a longer prompt gets a pass of its own.
        max_queued_requests: Most requests that may wait; past it the answer is 503. No limit by default.
    """

    max_running_requests: int = 256
    max_prefill_tokens: int = 4096
    max_queued_requests: int | None = None

    @property
    def max_live_requests(self) -> int | None:
        """Most requests that run or wait; None for no limit."""
        return None if self.max_queued_requests is None else self.max_running_requests + self.max_queued_requests


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """Memory for keys and values.

    Attributes:
        max_total_tokens: Slots for tokens; by default what `mem_fraction_static` of free memory holds, on a CPU at most
            65,536.
        mem_fraction_static: Share of the memory that is free after loading, for the default number of slots.
        disable_radix_cache: Do not keep prefixes of finished requests.
    """

    max_total_tokens: int | None = None
    mem_fraction_static: float = 0.5
    disable_radix_cache: bool = False


@dataclass(frozen=True, kw_only=True)
class GrammarConfig:
    """Constrained decoding.

    Attributes:
        json_whitespace: Where JSON output may hold white space: compact (nowhere), single_space (one space after each
            comma and colon), flexible (also line breaks and indentation).
        json_additional_properties: Whether objects that list properties and say nothing about others may have others.
        json_key_order: Whether properties come in the order in which the schema lists them, or in any.
        max_grammar_states: Most states that an automaton may have.
        max_grammar_depth: Most arrays, objects and strings that an output may nest, one in another.
        grammar_backend: What enforces constraints: fsm (automata on the device), llguidance (on the host; grammars in
            EBNF and Lark too), outlines (on the host; needs the package outlines-core), auto (fsm, and llguidance for
            grammars and for regexes whose automaton is too large).
        grammar_cache_size: How many compiled grammars are kept.
        grammar_compile_timeout: Seconds after which a compilation is given up.
        grammar_compile_memory: MiB of memory that a compilation may take.
        disable_grammar_disk_cache: Do not keep compiled automata in the user's cache folder.
        disable_jump_forward: Draw text that a grammar forces token by token; the output is the same.
    """

    json_whitespace: Literal["compact", "single_space", "flexible"] = "single_space"
    json_additional_properties: Literal["closed", "open"] = "closed"
    json_key_order: Literal["definition", "any"] = "definition"
    max_grammar_states: int = 100_000
    max_grammar_depth: int = 256
    grammar_backend: Literal["auto", "fsm", "llguidance", "outlines"] = "auto"
    grammar_cache_size: int = 1024
    grammar_compile_timeout: float = 30.0
    grammar_compile_memory: int = 2048
    disable_grammar_disk_cache: bool = False
    disable_jump_forward: bool = False


@dataclass(frozen=True, kw_only=True)
class DeviceConfig:
    """Where the model runs.

    Attributes:
        device: cpu.
        attention_backend: auto (the device's own) or reference.
        num_threads: Threads for tensor work on a CPU; all cores by default.
        random_seed: Seed for requests that bring none; fresh by default.
    """

    device: str = "cpu"
    attention_backend: str = "auto"
    num_threads: int | None = None
    random_seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """All sections."""

    model: ModelSection
    server: ServerConfig = field(default_factory=ServerConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    grammar: GrammarConfig = field(default_factory=GrammarConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)

    def __post_init__(self) -> None:
        _check_positive("port", self.server.port, 65535)
        _check_positive("max_running_requests", self.scheduler.max_running_requests)
        _check_positive("max_prefill_tokens", self.scheduler.max_prefill_tokens)
        _check_positive("max_queued_requests", self.scheduler.max_queued_requests)
        _check_positive("max_total_tokens", self.cache.max_total_tokens)
        _check_positive("context_length", self.model.context_length)
        _check_positive("num_threads", self.device.num_threads)
        _check_positive("max_grammar_states", self.grammar.max_grammar_states)
        _check_positive("grammar_cache_size", self.grammar.grammar_cache_size)
        if self.grammar.grammar_compile_memory < MIN_COMPILE_MEMORY:
            raise ConfigError(
                f"grammar_compile_memory is {self.grammar.grammar_compile_memory}; it must be at least"
                f" {MIN_COMPILE_MEMORY} MiB"
            )
        if not 0.0 < self.cache.mem_fraction_static < 1.0:
            raise ConfigError(
                f"mem_fraction_static is {self.cache.mem_fraction_static}; it must be between 0 and 1, both excluded"
            )
        if not self.grammar.grammar_compile_timeout > 0.0:
            raise ConfigError(
                f"grammar_compile_timeout is {self.grammar.grammar_compile_timeout}; it must be above 0 seconds"
            )


CPU_SLOT_LIMIT = 65_536
MIN_COMPILE_MEMORY = 256
"""MiB: a worker process itself takes some."""


def resolve_cache(config: CacheConfig, *, free_bytes: int, slot_bytes: int, slot_limit: int | None) -> CacheConfig:
    """Turn the default number of slots into a number.

    Args:
        config: The section as given.
        free_bytes: Memory free after the weights are loaded.
        slot_bytes: Bytes of keys and values of one token over all layers.
        slot_limit: Most slots worth holding on this device; None for no limit.
    """
    if config.max_total_tokens is not None:
        return config
    num_slots = int(free_bytes * config.mem_fraction_static) // slot_bytes
    return replace(config, max_total_tokens=min(num_slots, slot_limit or num_slots))


def resolve_context_length(asked: int | None, *, model_limit: int, num_slots: int) -> int:
    """The context limit: what was asked for or the model's own, and no more than the slots hold.

    Raises:
        ConfigError: the pool of slots or the asked length is too small to serve anything.
    """
    length = min(asked or model_limit, num_slots)
    if length < 8:
        raise ConfigError(
            f"room for only {length} tokens of context; raise max_total_tokens, mem_fraction_static or context_length"
        )
    return length


def cache_folder() -> Path:
    """Where this user's derived files are kept: $SGL_CACHE_DIR, or `sgl` in the user's cache folder."""
    chosen = os.environ.get("SGL_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sgl"


SPIN_COUNT = 20_000
"""Turns that an idle thread of a parallel region waits before it sleeps; GNU OpenMP's own default is 15 times this."""


def bound_thread_spinning() -> None:
    """Keep idle threads of tensor work from burning the cores that others need; called before torch is loaded.

    An idle thread that stays awake takes a core from the API, the detokenizer, or whatever else runs.  A setting of
    the user's own stands.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))


def _check_positive(name: str, value: int | None, high: float = math.inf) -> None:
    if value is not None and not 1 <= value <= high:
        allowed = "at least 1" if high == math.inf else f"from 1 to {int(high)}"
        raise ConfigError(f"{name} is {value}; it must be {allowed}")
