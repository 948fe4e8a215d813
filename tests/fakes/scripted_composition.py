"""The factories of a server or Engine with a scripted scheduler instead of a model."""

from dataclasses import dataclass, field
from threading import Event
from typing import Any

from fakes.byte_tokenizer import EOS_ID, VOCABULARY, ByteTokenizer
from fakes.scripted_scheduler import ScriptedScheduler
from sgl_runtime.config import RuntimeConfig
from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_info import PoolingInfo
from sgl_runtime.serving.factories import Factories

CONTEXT_LENGTH = 200


@dataclass(frozen=True)
class ScriptedHost:
    tokenizer: ByteTokenizer
    eos_ids: frozenset[int] = frozenset([EOS_ID])
    vocab_size: int = VOCABULARY.size
    hidden_size: int = 4
    pooling: PoolingInfo | None = None


@dataclass(frozen=True)
class ScriptedParts:
    scheduler: ScriptedScheduler = field(default_factory=ScriptedScheduler)
    facts: dict[str, Any] = field(
        default_factory=lambda: {"context_length": CONTEXT_LENGTH, "weight_dtype": "none", "max_total_tokens": 100}
    )


def build_host(config: RuntimeConfig) -> ScriptedHost:
    return ScriptedHost(ByteTokenizer(with_template=config.model.model_path != "plain"))


def build_scheduler(config: RuntimeConfig, host: ScriptedHost) -> ScriptedParts:
    if config.model.model_path == "missing":
        raise ModelLoadError("model path 'missing' does not exist")
    if config.model.model_path == "broken":
        raise ValueError("the weights make no sense")
    if config.model.model_path == "slow":
        Event().wait(60)
    return ScriptedParts()


SCRIPTED = Factories(
    host="fakes.scripted_composition:build_host", scheduler="fakes.scripted_composition:build_scheduler"
)
