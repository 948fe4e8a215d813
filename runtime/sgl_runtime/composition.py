"""The composition root of the model side: builds tokenizer and scheduler from a RuntimeConfig."""

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from sgl_runtime.cache.build_pools import build_pools
from sgl_runtime.config import RuntimeConfig
from sgl_runtime.config_values import bound_thread_spinning, cache_folder, resolve_encoder, resolve_scheduler
from sgl_runtime.executor.base import Executor
from sgl_runtime.grammar.base import GrammarVocabulary
from sgl_runtime.grammar.forced_tokens import ForcedTokens
from sgl_runtime.grammar.grammar_compiler import GrammarCompiler
from sgl_runtime.model_info import PoolingInfo
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.model_store.pooling_files import read_pooling
from sgl_runtime.sampling_params import MAX_SEED
from sgl_runtime.scheduler.batch_planner import BatchPlanner
from sgl_runtime.scheduler.grammar_queue import GrammarQueue
from sgl_runtime.scheduler.request_intake import RequestIntake
from sgl_runtime.scheduler.result_applier import ResultApplier
from sgl_runtime.scheduler.schedule_policy import SchedulePolicy
from sgl_runtime.scheduler.scheduler import Scheduler
from sgl_runtime.scheduler.sessions import Sessions
from sgl_runtime.scheduler.slot_ledger import SlotLedger
from sgl_runtime.scheduler.stats import SchedulerStats
from sgl_runtime.scheduler.stop_checker import StopChecker
from sgl_runtime.stopwatch import Stopwatch
from sgl_runtime.tokenizer.no_tokenizer import NoTokenizer
from sgl_runtime.tokenizer.tokenizer import Tokenizer, import_tokenizer_libraries, load_tokenizer
from sgl_runtime.tokenizer.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelHost:
    """A model's host side: files, tokenizer, end-of-sequence ids; torch-free.

    Attributes:
        config: All sections.
        source: The files.
        pooling: What a model that generates nothing does with a text; None for one that generates.
        watch: Runs since the model was opened.
    """

    config: RuntimeConfig
    source: ModelSource
    pooling: PoolingInfo | None
    watch: Stopwatch

    @classmethod
    def open(cls, config: RuntimeConfig) -> "ModelHost":
        """Find the model; its tokenizer is read when it is first asked for.

        Raises:
            ModelLoadError: it cannot be found or read.
        """
        watch = Stopwatch()
        with watch.part("files"):
            source = ModelSource.open(config.model)
            # The config is read before the tokenizer, whose loading reads it too and tells what is wrong with it worse.
            pooling = read_pooling(source, config.model)
        logger.info("model found path=%s architecture=%s", source.files.path, source.outline.architecture)
        return cls(config, source, pooling, watch)

    @cached_property
    def tokenizer(self) -> Tokenizer | NoTokenizer:
        """The served tokenizer, or what stands in its place.

        Raises:
            ModelLoadError: it cannot be read.
        """
        model = self.config.model
        if model.skip_tokenizer_init:
            return NoTokenizer(self.source.outline.vocab_size)
        with self.watch.part("imports"):
            import_tokenizer_libraries(self.source)
        with self.watch.part("tokenizer"):
            return load_tokenizer(
                self.source, tokenizer_path=model.tokenizer_path, chat_template=self.config.server.chat_template
            )

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end an output: the model's and the tokenizer's."""
        own = self.tokenizer.eos_id
        return self.source.outline.eos_ids | (frozenset() if own is None else frozenset([own]))

    @property
    def vocab_size(self) -> int:
        """Number of logits, V."""
        return self.source.outline.vocab_size

    @property
    def hidden_size(self) -> int:
        """Numbers of a token's embedding, C."""
        return self.source.outline.hidden_size


@dataclass(frozen=True)
class SchedulerParts:
    """A scheduler ready to serve.

    Attributes:
        scheduler: The scheduler.
        facts: What the API must know: `resolved_facts`, and weight_dtype, attention_backend, kv_cache_bytes.
    """

    scheduler: Scheduler
    facts: dict[str, Any]


def build_scheduler(config: RuntimeConfig, host: ModelHost) -> SchedulerParts:
    """Load the weights and build the scheduler around them.

    Raises:
        ConfigError, ModelLoadError: an option or the model is at fault.
    """
    bound_thread_spinning()
    watch = host.watch
    with watch.part("imports"):
        # Imported here: the processes without tensors must not load torch.
        from sgl_runtime.executor.local import LocalExecutor
        from sgl_runtime.model_runner.build import build_model
        from sgl_runtime.model_runner.build_pooling import build_pooling_model

    if host.source.is_encoder:
        config = resolve_encoder(config)
    if host.pooling is None:
        built = build_model(config, host.source, watch, meanwhile=lambda: host.tokenizer)
    else:
        built = build_pooling_model(config, host.source, host.pooling, watch)
    executor = LocalExecutor(built.runner)
    seed = config.device.random_seed
    resolved = replace(
        config,
        cache=replace(config.cache, max_total_tokens=built.num_slots),
        scheduler=resolve_scheduler(config.scheduler, runs_beside_host=executor.runs_beside_host),
        device=replace(config.device, random_seed=secrets.randbelow(MAX_SEED + 1) if seed is None else seed),
    )
    with watch.part("grammar"):
        scheduler = assemble_scheduler(
            resolved,
            executor,
            vocabulary=host.tokenizer.vocabulary,
            eos_ids=host.eos_ids,
            num_logits=host.vocab_size,
            context_length=built.context_length,
            num_host_slots=built.num_host_slots,
            encode=partial(host.tokenizer.encode, add_bos=False),
        )
    logger.info("model ready slots=%d %s", built.num_slots, watch.fields())
    facts = {
        "weight_dtype": built.weight_dtype,
        "device": built.device,
        "attention_backend": built.attention_backend,
        "kv_cache_bytes": built.kv_cache_bytes,
    }
    return SchedulerParts(scheduler, {**resolved_facts(resolved, context_length=built.context_length), **facts})


def resolved_facts(config: RuntimeConfig, *, context_length: int) -> dict[str, Any]:
    """What requests are held to, and other numbers that became fixed at start, by the names of docs/protocol.md.

    Args:
        config: Resolved.
        context_length: Most tokens of prompt and output together.
    """
    return {
        "context_length": context_length,
        "max_req_len": context_length,
        "max_req_input_len": context_length - 1,
        "max_total_tokens": config.cache.max_total_tokens,
        "max_running_requests": config.scheduler.max_running_requests,
        "max_prefill_tokens": config.scheduler.max_prefill_tokens,
        "chunked_prefill_size": config.scheduler.chunked_prefill_size,
        "random_seed": config.device.random_seed,
    }


def assemble_scheduler(
    config: RuntimeConfig,
    executor: Executor,
    *,
    vocabulary: Vocabulary,
    eos_ids: frozenset[int],
    num_logits: int,
    context_length: int,
    num_host_slots: int = 0,
    encode: Callable[[str], Sequence[int]] | None = None,
) -> Scheduler:
    """Put a scheduler together around an executor.

    Args:
        config: With `cache.max_total_tokens` resolved.
        executor: Runs the passes.
        vocabulary: Bytes of the tokens.
        eos_ids: Ids that end an output.
        num_logits: V.
        context_length: Most tokens of prompt and output together.
        num_host_slots: Slots of the pool in host memory that the executor has; 0 for none.
        encode: The tokenizer, for text that grammars force; None: such text is drawn token by token.
    """
    pools = build_pools(
        config.cache,
        num_rows=config.scheduler.max_running_requests,
        context_length=context_length,
        num_host_slots=num_host_slots,
    )
    ledger = SlotLedger(pools)
    limits = resolve_scheduler(config.scheduler, runs_beside_host=executor.runs_beside_host)
    grammar_vocabulary = constrained_vocabulary(vocabulary, eos_ids=eos_ids, num_logits=num_logits)
    folder = None if config.grammar.disable_grammar_disk_cache else cache_folder() / "grammars"
    grammars = GrammarQueue(
        GrammarCompiler(grammar_vocabulary, config.grammar, cache_folder=folder),
        eos_ids=eos_ids,
        num_mask_words=grammar_vocabulary.num_mask_words,
        forced=None if encode is None else ForcedTokens(grammar_vocabulary.token_bytes, encode),
        jump_forward=not config.grammar.disable_jump_forward,
        device=executor.open_grammars(
            grammar_vocabulary.token_bytes,
            end_ids=eos_ids,
            size=num_logits,
            max_depth=config.grammar.max_grammar_depth,
        ),
    )
    sessions = Sessions(
        max_sessions=config.features.max_sessions,
        context_length=context_length,
        token_lens=np.array(list(map(len, vocabulary.token_bytes)), dtype=np.int64),
    )
    return Scheduler(
        executor=executor,
        planner=BatchPlanner(ledger, limits, on_accelerator=executor.runs_beside_host),
        applier=ResultApplier(ledger, StopChecker(vocabulary, eos_ids=eos_ids), grammars),
        grammars=grammars,
        policy=SchedulePolicy(limits.schedule_policy, seed=config.device.random_seed),
        overlap=executor.runs_beside_host and not limits.disable_overlap_schedule,
        intake=RequestIntake(sessions, eos_ids=eos_ids, random_seed=config.device.random_seed),
        stats=SchedulerStats(decode_log_interval=config.logs.decode_log_interval),
    )


def constrained_vocabulary(vocabulary: Vocabulary, *, eos_ids: frozenset[int], num_logits: int) -> GrammarVocabulary:
    """The vocabulary as constraints see it: no special, unused or end-of-sequence token adds text."""
    never = vocabulary.special_ids | eos_ids
    entries = [
        None if index in never or not raw else raw for index, raw in enumerate(vocabulary.token_bytes[:num_logits])
    ]
    return GrammarVocabulary(entries, eos_ids, num_logits)
