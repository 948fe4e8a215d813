"""LiteLLM: models of many vendors (Anthropic, Vertex, Bedrock, ...) through the package `litellm`."""

import logging
from collections.abc import AsyncGenerator
from types import ModuleType
from typing import Any

from sgl.backends.base import Capabilities
from sgl.backends.vendor import VendorBackend, load_vendor_package, translated_errors
from sgl.backends.vendor_wire import API_FIELDS
from sgl.chat_template import ChatTemplate, as_chat_template
from sgl.errors import reject

logger = logging.getLogger(__name__)


class LiteLLM(VendorBackend):
    """Runs programs on a chat model that litellm reaches, named in its form: "anthropic/claude-..." and the like.

    The rules for programs are those of `OpenAI` for chat models.  Which vendor enforces JSON schemas and takes which
    setting is known to litellm: what a vendor lacks comes back as its error.  Gens may stand inside an assistant
    message where litellm knows that the model goes on there.

    Args:
        model_name: The model, with its vendor in front.
        chat_template: None: vendors put the text around messages themselves.
        api_key: None: where litellm finds it for the vendor.
        organization: Of vendors that have them.
        base_url: Address of the API; None: the vendor's own.
        timeout: Seconds for a call.
        max_retries: How often a call that failed is made again; None for litellm's own number.
        default_headers: Sent with every call.
        **options: Sent with every call: vertex_project, ...

    Raises:
        SglError: package `litellm` is not installed.
    """

    def __init__(
        self,
        model_name: str,
        chat_template: ChatTemplate | str | None = None,
        api_key: str | None = None,
        organization: str | None = None,
        base_url: str | None = None,
        timeout: float = 600,
        max_retries: int | None = None,
        default_headers: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(model_name, str) or not model_name:
            raise reject("model_name", model_name, "the name of a model, as in 'anthropic/claude-...'")
        self._litellm = load_vendor_package("litellm")
        goes_on = _goes_on_inside_messages(self._litellm, model_name)
        capabilities = Capabilities(
            shown_as=f"chat model {model_name!r} through litellm",
            has_select=False,
            has_tools=False,
            constraints=frozenset({"json_schema"}),
            sampling=frozenset(API_FIELDS),
            takes_messages=True,
            continues_messages=goes_on,
            media=frozenset({"image", "video"}),
            can_speculate=True,
        )
        super().__init__(
            model_name,
            is_chat=True,
            capabilities=capabilities,
            chat_template=as_chat_template(chat_template),
            prefix_by="prefix" if goes_on else None,
        )
        given: dict[str, Any] = {
            "api_key": api_key,
            "organization": organization,
            "base_url": base_url,
            "timeout": timeout,
        }
        given |= {"max_retries": max_retries, "extra_headers": default_headers, **options}
        self._options = {name: value for name, value in given.items() if value is not None}

    async def send(self, fields: dict[str, Any]) -> dict[str, Any]:
        """See `VendorBackend`."""
        with translated_errors(self.capabilities.shown_as):
            reply = await self._litellm.acompletion(**fields, **self._options)
        body: dict[str, Any] = reply.model_dump()
        return body

    async def send_streaming(self, fields: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """See `VendorBackend`."""
        with translated_errors(self.capabilities.shown_as):
            options = {"stream": True, "stream_options": {"include_usage": True}, **self._options}
            async for chunk in await self._litellm.acompletion(**fields, **options):
                yield chunk.model_dump()

    async def aclose(self) -> None:
        """See `Backend`.  The connections are litellm's own."""


def _goes_on_inside_messages(litellm: ModuleType, model_name: str) -> bool:
    try:
        return bool(litellm.get_model_info(model=model_name).get("supports_assistant_prefill"))
    except Exception as error:
        # litellm raises plain exceptions for models that are not in its table.
        logger.debug("litellm knows nothing of %s: %s", model_name, error)
        return False
