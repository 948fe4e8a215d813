"""What the API shows of the served model: put together from the configuration, the host and the scheduler's facts."""

import logging
from dataclasses import asdict
from typing import Any

from sgl_runtime.config import RuntimeConfig
from sgl_runtime.config_serving import SECRET_FIELDS
from sgl_runtime.model_info import ModelInfo
from sgl_runtime.server.reasoning_parsers import REASONING_PARSERS
from sgl_runtime.server.tool_parsers.table import detected_parser
from sgl_runtime.serving.factories import ServedHost

logger = logging.getLogger(__name__)


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
        is_generation=host.pooling is None,
        context_length=facts["context_length"],
        pooling=host.pooling,
        hidden_size=host.hidden_size,
        vocab_size=host.vocab_size,
        eos_token_ids=sorted(host.eos_ids),
        bos_token_id=host.tokenizer.bos_id,
        reasoning_parser=REASONING_PARSERS[parser] if parser is not None else None,
        tool_call_parser=config.server.tool_call_parser or _detected_tool_parser(host),
        has_tokenizer=not config.model.skip_tokenizer_init,
        has_chat_template=host.tokenizer.chat_template is not None,
        weight_dtype=facts["weight_dtype"],
    )


def _detected_tool_parser(host: ServedHost) -> str | None:
    template = host.tokenizer.chat_template
    found = None if template is None else detected_parser(template.source)
    if found is not None:
        logger.info("tool call parser found in the chat template name=%s", found)
    return found


def effective_settings(config: RuntimeConfig, facts: dict[str, Any]) -> dict[str, Any]:
    """What `/get_server_info` shows of the configuration: every field, with the values that were resolved.

    Of secrets it shows only whether there are any.
    """
    settings: dict[str, Any] = {}
    for section in asdict(config).values():
        settings.update(section)
    for name in SECRET_FIELDS:
        settings[name] = "***" if settings[name] else None
    return {**settings, **facts}
