"""What the API shows of the served model: put together from the configuration, the host and the scheduler's facts."""

from dataclasses import asdict
from typing import Any

from sgl_runtime.config import RuntimeConfig
from sgl_runtime.model_info import ModelInfo
from sgl_runtime.server.reasoning_parsers import REASONING_PARSERS
from sgl_runtime.serving.factories import ServedHost


def served_model_info(config: RuntimeConfig, host: ServedHost, facts: dict[str, Any]) -> ModelInfo:
    """What `/get_model_info` shows.

    Args:
        config: All sections.
        host: The model's host side.
        facts: Of the scheduler; `context_length` and `weight_dtype` are taken from them.
    """
    model_path = config.model.model_path
    parser = config.server.reasoning_parser
    return ModelInfo(
        model_path=model_path,
        served_model_name=config.server.served_model_name or model_path,
        is_generation=True,
        context_length=facts["context_length"],
        vocab_size=host.vocab_size,
        eos_token_ids=sorted(host.eos_ids),
        bos_token_id=host.tokenizer.bos_id,
        reasoning_parser=REASONING_PARSERS[parser] if parser is not None else None,
        has_chat_template=host.tokenizer.chat_template is not None,
        weight_dtype=facts["weight_dtype"],
    )


def effective_settings(config: RuntimeConfig, facts: dict[str, Any]) -> dict[str, Any]:
    """What `/get_server_info` shows of the configuration: every field, with the values that were resolved."""
    settings: dict[str, Any] = {}
    for section in asdict(config).values():
        settings.update(section)
    return {**settings, **facts}
