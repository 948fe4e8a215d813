"""Options that users of other servers bring: other names of ours, what says nothing here, and what is not there.

`config_flags` asks here for names that are no field of the configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sgl_runtime.errors import ConfigError

OTHER_NAMES: Mapping[str, str] = {
    "disable_outlines_disk_cache": "disable_grammar_disk_cache",
    "model": "model_path",
    "tokenizer": "tokenizer_path",
    "tokenizer_worker_num": "tokenizer_workers",
    "max_model_len": "context_length",
    "max_num_seqs": "max_running_requests",
    "block_size": "page_size",
    "enable_log_requests": "log_requests",
    "ssl_ca_certs_file": "ssl_ca_certs",
    "timeout_keep_alive": "keep_alive_timeout",
}
"""Other names of fields."""

SAYS_NOTHING: Mapping[str, str] = {
    "enable_metrics": "/metrics is always there",
    "enable_cache_report": "cached tokens are always reported",
    "enable_prompt_tokens_details": "cached tokens are always reported",
    "enable_prefix_caching": "prefixes are cached unless --disable-radix-cache is given",
    "enable_chunked_prefill": "long prompts are always computed in pieces",
    "enable_priority_scheduling": "priorities of requests always count",
    "enable_request_id_headers": "every reply has x-request-id",
    "async_scheduling": "passes are planned ahead where that pays, unless --disable-overlap-schedule is given",
    "skip_server_warmup": "there is no request before the first one",
    "sleep_on_idle": "a server without requests always sleeps",
    "trust_remote_code": "no code that comes with a model is run",
}
"""Switches that change nothing here, and why."""

_ONE_DEVICE = "a model runs on one device"


@dataclass(frozen=True)
class OnlyValue:
    """An option that can only have the value that it has anyway.

    Attributes:
        value: The value, as text.
        reason: Why there is no other.
    """

    value: str
    reason: str


ONLY_VALUES: Mapping[str, OnlyValue] = {
    **dict.fromkeys(("tp", "tp_size", "tensor_parallel_size"), OnlyValue("1", _ONE_DEVICE)),
    **dict.fromkeys(("pp", "pp_size", "pipeline_parallel_size"), OnlyValue("1", _ONE_DEVICE)),
    **dict.fromkeys(("ep", "ep_size", "expert_parallel_size"), OnlyValue("1", _ONE_DEVICE)),
    **dict.fromkeys(("dp", "dp_size", "data_parallel_size"), OnlyValue("1", "a server holds one copy of its model")),
    "nnodes": OnlyValue("1", "a server runs on one machine"),
    "node_rank": OnlyValue("0", "a server runs on one machine"),
    "tokenizer_mode": OnlyValue("auto", "there is one kind of tokenizer"),
    "kv_cache_dtype": OnlyValue("auto", "keys and values have the type of the weights"),
    "stream_interval": OnlyValue("1", "every token is streamed as it comes"),
}

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "speculative_algorithm",
            "speculative_draft_model_path",
            "speculative_num_steps",
            "speculative_eagle_topk",
            "speculative_num_draft_tokens",
            "speculative_config",
        ),
        "there is no speculative decoding",
    ),
    **dict.fromkeys(("enable_lora", "lora_paths", "lora_modules", "max_loras_per_batch"), "there are no adapters"),
    **dict.fromkeys(
        ("disaggregation_mode", "disaggregation_transfer_backend", "kv_transfer_config"),
        "one server computes prompts and outputs",
    ),
    **dict.fromkeys(("quantization", "torchao_config"), "weights are not quantized at start; give a quantized file"),
    **dict.fromkeys(("enable_torch_compile", "compilation_config"), "models are not compiled"),
    **dict.fromkeys(("cpu_offload_gb", "swap_space"), "weights stay on the device"),
    **dict.fromkeys(("enable_dp_attention", "enable_ep_moe", "dist_init_addr"), _ONE_DEVICE),
    "hicache_storage_backend": "prefixes are kept on the device and in host memory, not on disks",
    "enable_memory_saver": "memory is held until the server ends",
    "enable_trace": "traces are sent where --otlp-traces-endpoint says",
    "enforce_eager": "the switch for that is --disable-cuda-graph",
    "gpu_memory_utilization": "the option for that is --mem-fraction-static, a share of what is free after loading",
    "no_enable_prefix_caching": "the switch for that is --disable-radix-cache",
    "schedule_low_priority_values_first": "requests with larger priorities run first",
    "middleware": "the server takes no code into its HTTP path; put a proxy in front of it",
}
"""Options that would change what the server does, and why they cannot."""


def is_foreign(name: str) -> bool:
    """Whether `without_foreign` knows what to do with a name."""
    return name in SAYS_NOTHING or name in ONLY_VALUES or name in REFUSED


def note_foreign(name: str, value: object) -> str:
    """What is to be said of an option that is no field of ours, and changes nothing.

    Args:
        name: For which `is_foreign` holds.
        value: What it was set to.

    Raises:
        ConfigError: it would have to change something.
    """
    if name in SAYS_NOTHING:
        return f"{name} changes nothing: {SAYS_NOTHING[name]}"
    if name in ONLY_VALUES:
        only = ONLY_VALUES[name]
        if str(value) != only.value:
            raise ConfigError(f"{name} is {value}; it must be {only.value}: {only.reason}")
        return f"{name} changes nothing: {only.reason}"
    raise ConfigError(f"{name} is not supported: {REFUSED[name]}")
