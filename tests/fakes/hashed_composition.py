"""The factories of a server or Engine with the real scheduler around the scripted executor, and a byte tokenizer.

What follows a prompt is a hash of it, so a wrong prompt shows in the output.
"""

from dataclasses import dataclass, replace
from typing import Any

from fakes.byte_tokenizer import EOS_ID, VOCABULARY
from fakes.scripted_composition import ScriptedHost
from sgl_runtime.composition import assemble_scheduler, resolved_facts
from sgl_runtime.config import RuntimeConfig
from sgl_runtime.config_values import resolve_scheduler
from sgl_runtime.scheduler.scheduler import Scheduler
from sgl_runtime.serving.factories import Factories

CONTEXT_LENGTH = 200
NUM_SLOTS = 600
# Outputs are lower-case letters and what stands around them.
NUM_DRAWN = 128
# Of the model that is called "paced".
PASS_S = 0.05


@dataclass(frozen=True)
class HashedParts:
    scheduler: Scheduler
    facts: dict[str, Any]


def build_scheduler(config: RuntimeConfig, host: ScriptedHost) -> HashedParts:
    # It loads torch, which takes seconds in each process.
    from fakes.scripted_executor import ScriptedExecutor

    num_slots = config.cache.max_total_tokens or NUM_SLOTS
    executor = ScriptedExecutor(
        num_slots=num_slots,
        num_rows=config.scheduler.max_running_requests,
        context_length=CONTEXT_LENGTH,
        num_tokens=NUM_DRAWN,
        overlap=True,
        keeps_batches=False,
        pass_s=PASS_S if config.model.model_path == "paced" else 0.0,
    )
    cache = replace(config.cache, max_total_tokens=num_slots)
    resolved = replace(config, cache=cache, scheduler=resolve_scheduler(config.scheduler, runs_beside_host=True))
    scheduler = assemble_scheduler(
        resolved,
        executor,
        vocabulary=VOCABULARY,
        eos_ids=frozenset({EOS_ID}),
        num_logits=VOCABULARY.size,
        context_length=CONTEXT_LENGTH,
    )
    facts = {**resolved_facts(resolved, context_length=CONTEXT_LENGTH), "weight_dtype": "none"}
    return HashedParts(scheduler, facts)


HASHED = Factories(host="fakes.scripted_composition:build_host", scheduler="fakes.hashed_composition:build_scheduler")
