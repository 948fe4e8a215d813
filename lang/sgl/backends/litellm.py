"""LiteLLM: models of many vendors (Anthropic, Vertex, Bedrock, ...) through the package `litellm`."""

from collections.abc import AsyncGenerator
from typing import Any

from sgl.backends.base import Capabilities
from sgl.backends.vendor import VendorBackend, load_vendor_package, translated_errors
from sgl.backends.vendor_wire import API_FIELDS
from sgl.errors import reject


class LiteLLM(VendorBackend):
    """Runs programs on a chat model that litellm reaches, named in its form: "anthropic/claude-..." and the like.

    The rules for programs are those of `OpenAI` for chat models.  Which vendor enforces JSON schemas and takes which
    setting is known to litellm: what a vendor lacks comes back as its error.

    Args:
        model_name: The model, with its vendor in front.
        api_key: None: where litellm finds it for the vendor.
        base_url: Address of the API; None: the vendor's own.
        **options: Sent with every call: timeout, max_retries, organization, vertex_project, ...

    Raises:
        SglError: package `litellm` is not installed.
    """

    def __init__(
        self, model_name: str, *, api_key: str | None = None, base_url: str | None = None, **options: Any
    ) -> None:
        if not isinstance(model_name, str) or not model_name:
            raise reject("model_name", model_name, "the name of a model, as in 'anthropic/claude-...'")
        capabilities = Capabilities(
            shown_as=f"chat model {model_name!r} through litellm",
            has_select=False,
            has_tools=False,
            constraints=frozenset({"json_schema"}),
            sampling=frozenset(API_FIELDS),
            takes_messages=True,
        )
        super().__init__(model_name, is_chat=True, capabilities=capabilities)
        given = {"api_key": api_key, "base_url": base_url, **options}
        self._options = {name: value for name, value in given.items() if value is not None}
        self._litellm = load_vendor_package("litellm")

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
