"""RuntimeConfig: every start-up option, in one frozen section for each component.

`resolve_*` functions turn "auto" into a value once.  Command-line flags are made from these fields by `cli.py`.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from sgl_runtime.config_checks import check_positive
from sgl_runtime.config_serving import AccessConfig, ConnectionConfig, LogConfig
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
ToolParserName = Literal[
    "deepseekv3",
    "deepseekv31",
    "glm45",
    "gpt-oss",
    "hermes",
    "kimi_k2",
    "llama3",
    "mistral",
    "pythonic",
    "qwen",
    "qwen25",
    "qwen3_coder",
]


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """The HTTP process.

    Attributes:
        host: Address to listen on.
        port: TCP port to listen on.
        served_model_name: Name in /v1/models and in replies; the model path by default.
        chat_template: File with a Jinja chat template that replaces the model's own.
        reasoning_parser: How the model marks its thinking, which chat replies and programs then tell apart.
        tool_call_parser: How the model writes tool calls; by default what its chat template shows.
        tokenizer_workers: Most threads that turn long and many texts into tokens, beside the one that serves.
        disable_web: Serve no web page at /.
    """

    host: str = "127.0.0.1"
    port: int = 30000
    served_model_name: str | None = None
    chat_template: str | None = None
    reasoning_parser: ReasoningParserName | None = None
    tool_call_parser: ToolParserName | None = None
    tokenizer_workers: int = 4
    disable_web: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelSection:
    """Which model, and how it is read.

    Attributes:
        model_path: `smollm2`, a folder, a `.gguf` file, or a hub id (owner/name).
        tokenizer_path: Folder of the tokenizer; the model's by default.
        skip_tokenizer_init: Load no tokenizer: requests bring token ids, and get token ids.
        revision: Branch, tag or commit of a hub id.
        load_format: auto reads the model's files; dummy makes up random weights, to measure speed.
        dtype: Type of the weights in memory; auto takes float32 on a CPU, bfloat16 on a GPU.
        context_length: Limit on prompt and output together; the model's own by default.
        is_embedding: Make vectors of texts with a model that could generate, and generate nothing.
        pooling_method: How a vector is made of the hidden states of a text: their mean, that of the first token (cls)
            or of the last; by default what the model's files say.
    """

    model_path: str
    tokenizer_path: str | None = None
    skip_tokenizer_init: bool = False
    revision: str | None = None
    load_format: Literal["auto", "dummy"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    context_length: int | None = None
    is_embedding: bool = False
    pooling_method: Literal["mean", "cls", "last"] | None = None


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """How requests are put together into passes.

    Attributes:
        max_running_requests: Most requests that decode together.
        max_queued_requests: Most requests that may wait; past it the answer is 503. By default 16,384 in a server.
        max_prefill_tokens: Most prompt tokens that are computed while running requests wait for their next token; by
            default twice a chunk.
        chunked_prefill_size: Most prompt tokens in one pass; longer prompts are computed in pieces. -1 computes every
            prompt in one pass. By default 512 on a CPU, 8,192 on a GPU.
        enable_mixed_chunk: Let running requests decode in the passes that compute prompts.
        schedule_policy: Order of waiting requests: lpm (longest cached prefix first), dfs-weight (down the tree of
            prefixes), fcfs (by arrival), lof (longest output first), random.
        schedule_conservativeness: Scales how much memory is set aside for outputs; above 1 fewer requests run
            together, and fewer have to be computed again.
        priority_scheduling_preemption_threshold: By how much the priority of a waiting request must exceed that of a
            running one to take its place.
        disable_overlap_schedule: Wait for each pass before the next one is planned.
    """

    max_running_requests: int = 256
    max_queued_requests: int | None = None
    max_prefill_tokens: int | None = None
    chunked_prefill_size: int | None = None
    enable_mixed_chunk: bool = False
    schedule_policy: Literal["lpm", "dfs-weight", "fcfs", "lof", "random"] = "lpm"
    schedule_conservativeness: float = 1.0
    priority_scheduling_preemption_threshold: int = 10
    disable_overlap_schedule: bool = False

    @property
    def max_live_requests(self) -> int | None:
        """Most requests that run or wait; None for no limit."""
        return None if self.max_queued_requests is None else self.max_running_requests + self.max_queued_requests

    def check(self) -> None:
        """See that the values make sense.

        Raises:
            ConfigError: one does not.
        """
        check_positive("max_running_requests", self.max_running_requests)
        check_positive("max_queued_requests", self.max_queued_requests)
        check_positive("max_prefill_tokens", self.max_prefill_tokens)
        size = self.chunked_prefill_size
        if size is not None and size != -1 and size < 1:
            raise ConfigError(f"chunked_prefill_size is {size}; it must be at least 1, or -1 for prompts as a whole")
        threshold = self.priority_scheduling_preemption_threshold
        check_positive("priority_scheduling_preemption_threshold", threshold)
        if not self.schedule_conservativeness > 0.0:
            raise ConfigError(f"schedule_conservativeness is {self.schedule_conservativeness}; it must be above 0")


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """Memory for keys and values.

    Attributes:
        max_total_tokens: Slots for tokens; by default what `mem_fraction_static` of free memory holds, on a CPU at most
            65,536.
        mem_fraction_static: Share of the memory that is free after loading, for the default number of slots; by
            default 0.5 on a CPU, 0.85 on a GPU.
        page_size: Tokens that are allocated, shared and dropped together: a power of two up to 256.
        disable_radix_cache: Do not keep prefixes of finished requests.
        radix_eviction_policy: Which prefixes are dropped first: lru (not used for longest), lfu (used least often),
            fifo (oldest), priority (of the least urgent requests).
        enable_hierarchical_cache: Keep prefixes that are dropped from the device in host memory, and copy them back
            instead of computing them again.
        hicache_ratio: Slots of the pool in host memory for each slot on the device.
        hicache_size: Size of that pool in GB, instead of the ratio.
        hicache_write_policy: When prefixes are copied to the host: write_back (when they are dropped), write_through
            (after they were computed).
        kv_events: Keep a log of what happens in the cache.
    """

    max_total_tokens: int | None = None
    mem_fraction_static: float | None = None
    page_size: int = 1
    disable_radix_cache: bool = False
    radix_eviction_policy: Literal["lru", "lfu", "fifo", "priority"] = "lru"
    enable_hierarchical_cache: bool = False
    hicache_ratio: float = 2.0
    hicache_size: float | None = None
    hicache_write_policy: Literal["write_back", "write_through"] = "write_back"
    kv_events: bool = False

    def check(self) -> None:
        """See that the values make sense.

        Raises:
            ConfigError: one does not.
        """
        check_positive("max_total_tokens", self.max_total_tokens)
        if self.mem_fraction_static is not None and not 0.0 < self.mem_fraction_static < 1.0:
            raise ConfigError(
                f"mem_fraction_static is {self.mem_fraction_static}; it must be between 0 and 1, both excluded"
            )
        if not 1 <= self.page_size <= 256 or self.page_size.bit_count() != 1:
            raise ConfigError(f"page_size is {self.page_size}; it must be a power of two from 1 to 256")
        if (self.max_total_tokens or 0) % self.page_size:
            raise ConfigError(
                f"max_total_tokens is {self.max_total_tokens}; it must be a multiple of page_size, {self.page_size}"
            )
        for name, value in (("hicache_ratio", self.hicache_ratio), ("hicache_size", self.hicache_size)):
            if value is not None and not 0.0 < value < math.inf:
                raise ConfigError(f"{name} is {value}; it must be a number above 0")
        for name, is_on in (
            ("enable_hierarchical_cache", self.enable_hierarchical_cache),
            ("kv_events", self.kv_events),
        ):
            if is_on and self.disable_radix_cache:
                raise ConfigError(f"{name} is true; it must be false where disable_radix_cache is true")


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
    max_grammar_states: int = 200_000
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
        device: cpu, cuda, or auto, which takes a GPU where there is one.
        attention_backend: auto (the best that can be used), flashinfer (on a GPU: prompts by FlashInfer's kernels,
            which are compiled beside the server the first time), triton (on a GPU), reference, or invariant (slower; a
            token's result depends on its context alone).
        sampling_backend: What heeds top_k, top_p and min_p: auto (the device's own), triton or flashinfer (on a GPU),
            pytorch.
        disable_cuda_graph: Launch decode passes on a GPU kernel by kernel.
        cuda_graph_max_bs: Rows of the largest decode pass that is captured as a CUDA graph.
        num_threads: Threads for tensor work on a CPU; all cores by default.
        random_seed: Seed for requests that bring none; fresh by default.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    attention_backend: str = "auto"
    sampling_backend: Literal["auto", "triton", "pytorch", "flashinfer"] = "auto"
    disable_cuda_graph: bool = False
    cuda_graph_max_bs: int = 256
    num_threads: int | None = None
    random_seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """What requests may ask for besides.

    Attributes:
        custom_logit_processor: Processors of logits that requests may name: NAME=MODULE:ATTRIBUTE, several separated by
            commas.
        enable_custom_logit_processor: Take pickled processors from requests; whoever can send one can then run any
            code in the server.
        enable_return_hidden_states: Let requests ask for the last hidden states.
        enable_deterministic_inference: Compute every request bit by bit as if it were alone; slower.
        max_sessions: Most sessions that are open at a time.
        allow_auto_truncate: Cut prompts that are too long at their end, instead of refusing them.
    """

    custom_logit_processor: str | None = None
    enable_custom_logit_processor: bool = False
    enable_return_hidden_states: bool = False
    enable_deterministic_inference: bool = False
    max_sessions: int = 1024
    allow_auto_truncate: bool = False


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """All sections."""

    model: ModelSection
    server: ServerConfig = field(default_factory=ServerConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    connections: ConnectionConfig = field(default_factory=ConnectionConfig)
    logs: LogConfig = field(default_factory=LogConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    grammar: GrammarConfig = field(default_factory=GrammarConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    features: FeatureConfig = field(default_factory=FeatureConfig)

    def __post_init__(self) -> None:
        check_positive("port", self.server.port, 65535)
        check_positive("tokenizer_workers", self.server.tokenizer_workers)
        self.access.check()
        self.connections.check()
        self.logs.check()
        self.scheduler.check()
        self.cache.check()
        check_positive("context_length", self.model.context_length)
        check_positive("num_threads", self.device.num_threads)
        check_positive("cuda_graph_max_bs", self.device.cuda_graph_max_bs)
        check_positive("max_sessions", self.features.max_sessions)
        logit_processor_paths(self.features.custom_logit_processor)
        backend = self.device.attention_backend
        if self.features.enable_deterministic_inference and backend not in ("auto", "invariant"):
            raise ConfigError(
                f"attention_backend is {backend!r}; with enable_deterministic_inference it must be auto or invariant"
            )
        check_positive("max_grammar_states", self.grammar.max_grammar_states)
        check_positive("grammar_cache_size", self.grammar.grammar_cache_size)
        if self.grammar.grammar_compile_memory < MIN_COMPILE_MEMORY:
            raise ConfigError(
                f"grammar_compile_memory is {self.grammar.grammar_compile_memory}; it must be at least"
                f" {MIN_COMPILE_MEMORY} MiB"
            )
        if not self.grammar.grammar_compile_timeout > 0.0:
            raise ConfigError(
                f"grammar_compile_timeout is {self.grammar.grammar_compile_timeout}; it must be above 0 seconds"
            )


MIN_COMPILE_MEMORY = 256
"""MiB: a worker process itself takes some."""


def logit_processor_paths(text: str | None) -> dict[str, str]:
    """Names and import paths of `custom_logit_processor`.

    Raises:
        ConfigError: the text is not of the form NAME=MODULE:ATTRIBUTE,..., or has a name twice.
    """
    paths: dict[str, str] = {}
    for entry in (text or "").split(",") if text else ():
        name, equals, path = (part.strip() for part in entry.partition("="))
        module, _, attribute = path.partition(":")
        if not (name and equals and module and attribute) or name in paths or name.startswith("{"):
            raise ConfigError(
                f"custom_logit_processor holds {entry!r}; it must be NAME=MODULE:ATTRIBUTE with a name of its own"
            )
        paths[name] = path
    return paths
