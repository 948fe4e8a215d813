"""Anthropic, VertexAI, Crusoe: vendors under the names that programs know, over LiteLLM and OpenAI."""

import os
from typing import Any

from sgl.backends.litellm import LiteLLM
from sgl.backends.openai import OpenAI
from sgl.chat_template import ChatTemplate
from sgl.errors import SglError

CRUSOE_URL = "https://managed-inference-api-proxy.crusoecloud.com/v1"


class Anthropic(LiteLLM):
    """Runs programs on a model of Anthropic, through litellm.

    Args:
        model_name: As Anthropic calls it, as in "claude-sonnet-4-5".
        **kwargs: The options of `LiteLLM`; the key is found in ANTHROPIC_API_KEY.

    Raises:
        SglError: package `litellm` is not installed.
    """

    def __init__(self, model_name: str, **kwargs: Any) -> None:
        super().__init__(f"anthropic/{model_name}", **kwargs)


class VertexAI(LiteLLM):
    """Runs programs on a model of Google's Vertex AI, through litellm.

    Args:
        model_name: As Vertex calls it, as in "gemini-2.5-flash".
        safety_settings: Sent with every call.
        **kwargs: The options of `LiteLLM`.  Project and place are those of GCP_PROJECT_ID and GCP_LOCATION in the
            environment, or of vertex_project and vertex_location here, or what litellm finds.

    Raises:
        SglError: package `litellm` is not installed.
    """

    def __init__(self, model_name: str, safety_settings: Any = None, **kwargs: Any) -> None:
        found = {
            "vertex_project": os.environ.get("GCP_PROJECT_ID"),
            "vertex_location": os.environ.get("GCP_LOCATION"),
            "safety_settings": safety_settings,
        }
        super().__init__(f"vertex_ai/{model_name}", **{**found, **kwargs})


class Crusoe(OpenAI):
    """Runs programs on a model that Crusoe serves.

    Args:
        model_name: As Crusoe calls it, as in "meta-llama/Llama-3.3-70B-Instruct".
        api_key: None: the environment's CRUSOE_API_KEY.
        base_url: Address of the API; None: Crusoe's own.
        chat_template: For a model that completes text (`is_chat_model=False`), as for `OpenAI`.
        **kwargs: The options of `OpenAI`.

    Raises:
        SglError: package `openai` is not installed, or there is no key.
    """

    def __init__(
        self,
        model_name: str,
        api_key: str | None = None,
        base_url: str | None = None,
        chat_template: ChatTemplate | str | None = None,
        **kwargs: Any,
    ) -> None:
        # The environment's key is for Crusoe alone, never for another address.
        key = api_key or (os.environ.get("CRUSOE_API_KEY") if base_url is None else None)
        if key is None and base_url is None:
            raise SglError(f"model {model_name!r} of Crusoe needs api_key, or CRUSOE_API_KEY in the environment")
        url = base_url or CRUSOE_URL
        super().__init__(model_name, chat_template=chat_template, base_url=url, api_key=key, **kwargs)
