"""OpenAI: models behind OpenAI's API, or behind any server that speaks it, through the package `openai`."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any
from urllib.parse import urlsplit

from sgl.backends.base import Capabilities
from sgl.backends.runtime import LOOPBACK_HOSTS
from sgl.backends.vendor import VendorBackend, load_vendor_package, translated_errors
from sgl.backends.vendor_wire import API_FIELDS, CONSTRAINT_EXTENSIONS, EXTENSIONS, PREFIX_EXTENSIONS
from sgl.chat_template import ChatTemplate, as_chat_template
from sgl.errors import SglError, reject
from sgl.event_loop import event_loop_thread

COMPLETION_MODELS = frozenset({"gpt-3.5-turbo-instruct", "davinci-002", "babbage-002"})


class OpenAI(VendorBackend):
    """Runs programs on a model of OpenAI, or of a server that speaks its API (also `sgl serve`).

    A chat model gets the messages of the state, images included: gens stand in the role assistant, first in their
    message (elsewhere with speculation, or with an extension that continues messages), and there is no text outside of
    roles.  JSON schemas are enforced by `response_format`.  What the API lacks (`select`, `regex`, `top_k`, tools in a
    gen, ...) is refused where a program appends it.

    Args:
        model_name: The model.
        is_chat_model: Which endpoint to use; None: that for chats, but for the few models that only complete text.
        chat_template: For a model that completes text: the text around messages, a `ChatTemplate` or its name.
        is_azure: Whether it is Azure's OpenAI, whose client takes azure_endpoint, api_version and azure_deployment.
        base_url: Address of the API, as in "http://localhost:30000/v1"; None: OpenAI's own.
        api_key: None: the environment's OPENAI_API_KEY, which is sent to OpenAI alone, never to another `base_url`.
        extensions: Names of what the server takes beyond OpenAI's API, among top_k, min_p, repetition_penalty,
            min_new_tokens, stop_token_ids, ignore_eos, regex, json_schema (for completion endpoints), and, for chats
            that go on inside an assistant message, prefix (a field of that message: DeepSeek, Mistral) or
            continue_final_message (a field of the request: many local servers).
        **client_options: For the client of package `openai`: timeout, max_retries, organization, default_headers, ...

    Raises:
        SglError: package `openai` is not installed, or there is no key.
        ArgumentError: an extension is not known.
    """

    def __init__(
        self,
        model_name: str,
        is_chat_model: bool | None = None,
        chat_template: ChatTemplate | str | None = None,
        is_azure: bool = False,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        extensions: Sequence[str] = (),
        **client_options: Any,
    ) -> None:
        if not isinstance(model_name, str) or not model_name:
            raise reject("model_name", model_name, "the name of a model")
        is_chat = model_name not in COMPLETION_MODELS if is_chat_model is None else is_chat_model
        kind = "chat" if is_chat else "completion"
        vendor = f"at {base_url}" if base_url is not None else "of Azure" if is_azure else "of OpenAI"
        shown_as = f"{kind} model {model_name!r} {vendor}"
        super().__init__(
            model_name,
            is_chat=is_chat,
            capabilities=_capabilities(shown_as, is_chat=is_chat, extensions=extensions),
            chat_template=as_chat_template(chat_template),
            prefix_by=next((name for name in PREFIX_EXTENSIONS if name in extensions), None),
        )
        openai = load_vendor_package("openai")
        make_client = openai.AsyncAzureOpenAI if is_azure else openai.AsyncOpenAI
        if base_url is not None:
            api_key = api_key or "none"
            if urlsplit(base_url).hostname in LOOPBACK_HOSTS:
                # A proxy of the environment cannot reach servers of this machine.
                client_options.setdefault("http_client", openai.DefaultAsyncHttpxClient(trust_env=False))
        try:
            self._client = make_client(base_url=base_url, api_key=api_key, **client_options)
        except (openai.OpenAIError, ValueError) as error:
            raise SglError(f"{shown_as}: {error}") from error

    async def send(self, fields: dict[str, Any]) -> dict[str, Any]:
        """See `VendorBackend`."""
        with translated_errors(self.capabilities.shown_as):
            reply = await self._endpoint.create(**fields)
        body: dict[str, Any] = reply.model_dump()
        return body

    async def send_streaming(self, fields: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """See `VendorBackend`."""
        with translated_errors(self.capabilities.shown_as):
            options = {"stream": True, "stream_options": {"include_usage": True}}
            async with await self._endpoint.create(**fields, **options) as chunks:
                async for chunk in chunks:
                    yield chunk.model_dump()

    def close(self) -> None:
        """Close the connections."""
        event_loop_thread().wait(self.aclose())

    async def aclose(self) -> None:
        """See `Backend`."""
        await self._client.close()

    @property
    def _endpoint(self) -> Any:
        return self._client.chat.completions if self.is_chat_model else self._client.completions


def _capabilities(shown_as: str, *, is_chat: bool, extensions: Sequence[str]) -> Capabilities:
    known = (*EXTENSIONS, *CONSTRAINT_EXTENSIONS, *PREFIX_EXTENSIONS)
    for name in extensions:
        if name not in known:
            raise reject("extensions", name, "among " + ", ".join(known))
    own = {"json_schema"} if is_chat else set()
    return Capabilities(
        shown_as=shown_as,
        has_select=False,
        has_tools=not is_chat and "json_schema" in extensions,
        constraints=frozenset(own | (set(extensions) & set(CONSTRAINT_EXTENSIONS))),
        sampling=frozenset(API_FIELDS) | (set(extensions) & set(EXTENSIONS)),
        takes_messages=is_chat,
        continues_messages=is_chat and not set(PREFIX_EXTENSIONS).isdisjoint(extensions),
        media=frozenset({"image", "video"}) if is_chat else frozenset(),
        can_speculate=True,
    )
