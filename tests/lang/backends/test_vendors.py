"""Vendors under the names that programs know, and models of Azure."""

import sys
from types import SimpleNamespace

import openai
import pytest

import sgl
from sgl.event_loop import event_loop_thread

pytestmark = pytest.mark.timeout(30)


@sgl.function
def chat(s):
    s += sgl.user("q") + sgl.assistant("Sure: " + sgl.gen("x", max_tokens=9))


@sgl.function
def plain(s):
    s += sgl.user("q") + sgl.assistant(sgl.gen("x"))


class LiteLLMStandIn:
    """Package litellm as far as the backend uses it, carried by the official client."""

    def __init__(self, client, prefill):
        self.client, self.prefill, self.options = client, prefill, []

    def get_model_info(self, model):
        if self.prefill is None:
            raise ValueError("This model isn't mapped yet")
        return {"supports_assistant_prefill": self.prefill}

    async def acompletion(self, **fields):
        wire = ("model", "messages", "max_completion_tokens", "stop", "stream", "stream_options")
        self.options.append({name: value for name, value in fields.items() if name not in wire})
        return await self.client.chat.completions.create(**{name: fields[name] for name in wire if name in fields})


@pytest.fixture
def litellm(openai_stub, monkeypatch):
    """`litellm(prefill)`: a stand-in whose requests go to a stub; `stub` is the stub."""
    with openai_stub(lambda body: "yes") as server:
        client = openai.AsyncOpenAI(base_url=server.url, api_key="none")

        def make(prefill):
            package = LiteLLMStandIn(client, prefill)
            monkeypatch.setitem(sys.modules, "litellm", package)
            return package

        yield SimpleNamespace(make=make, stub=server)
        event_loop_thread().wait(client.close())


def test_anthropic_is_reached_through_litellm(litellm):
    package = litellm.make(True)
    backend = sgl.Anthropic("claude-x", api_key="key", max_retries=2, default_headers={"a": "b"})
    assert chat.run(backend=backend)["x"] == "yes"
    body = litellm.stub.requests[0][1]
    assert body["model"] == "anthropic/claude-x"
    # litellm knows that the model goes on inside a message, so the gen need not be the first in it.
    assert body["messages"][-1] == {"role": "assistant", "content": "Sure: ", "prefix": True}
    assert package.options == [{"api_key": "key", "timeout": 600, "max_retries": 2, "extra_headers": {"a": "b"}}]
    assert isinstance(backend, sgl.LiteLLM)


@pytest.mark.parametrize("prefill", [False, None])
def test_a_model_that_does_not_go_on_inside_messages_says_so(litellm, prefill):
    litellm.make(prefill)
    with pytest.raises(sgl.ProgramError, match="begins with 'Sure: ' before the gen, and this chat endpoint"):
        chat.run(backend=sgl.LiteLLM("vendor/model"))["x"]
    assert litellm.stub.requests == []


def test_vertex_finds_project_and_place_in_the_environment(litellm, monkeypatch):
    package = litellm.make(False)
    monkeypatch.setenv("GCP_PROJECT_ID", "mine")
    monkeypatch.setenv("GCP_LOCATION", "here")
    plain.run(backend=sgl.VertexAI("gemini-x", {"HARM": "NONE"})).sync()
    plain.run(backend=sgl.VertexAI("gemini-x", vertex_location="there")).sync()
    assert [body["model"] for _, body, _ in litellm.stub.requests] == ["vertex_ai/gemini-x"] * 2
    first, second = package.options
    assert first == {
        "timeout": 600, "vertex_project": "mine", "vertex_location": "here", "safety_settings": {"HARM": "NONE"},
    }  # fmt: skip
    assert second == {"timeout": 600, "vertex_project": "mine", "vertex_location": "there"}


def test_crusoe_is_an_openai_server_with_a_key_of_its_own(openai_stub, monkeypatch):
    monkeypatch.setenv("CRUSOE_API_KEY", "secret")
    with openai_stub(lambda body: "yes") as server:
        backend = sgl.Crusoe("llama", base_url=server.url)
        assert plain.run(backend=backend)["x"] == "yes"
        # The key of the environment goes to Crusoe alone.
        assert server.requests[0][2] == "Bearer none"
        backend.close()
        text = sgl.Crusoe("llama", "key", server.url, "chatml", is_chat_model=False)
        assert plain.run(backend=text)["x"] == "yes"
        text.close()
    path, body, key = server.requests[1]
    assert (path, key) == ("/v1/completions", "Bearer key")
    assert body["prompt"] == "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
    assert body["stop"] == ["<|im_end|>"]
    crusoe = sgl.Crusoe("llama")
    assert "crusoecloud.com" in crusoe.capabilities.shown_as
    crusoe.close()
    monkeypatch.delenv("CRUSOE_API_KEY")
    with pytest.raises(sgl.SglError, match="model 'llama' of Crusoe needs api_key, or CRUSOE_API_KEY"):
        sgl.Crusoe("llama")


def test_azure_has_a_client_of_its_own(openai_stub, monkeypatch):
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_VERSION", raising=False)
    with openai_stub(lambda body: "yes") as server:
        endpoint = server.url.removesuffix("/v1")
        backend = sgl.OpenAI(
            "gpt", is_azure=True, azure_endpoint=endpoint, api_key="key", api_version="2024-06-01",
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        )  # fmt: skip
        assert plain.run(backend=backend)["x"] == "yes"
        assert server.requests[0][0] == "/openai/deployments/gpt/chat/completions?api-version=2024-06-01"
        backend.close()
    with pytest.raises(sgl.SglError, match=r"chat model 'gpt' of Azure: .*api_version"):
        sgl.OpenAI("gpt", is_azure=True, azure_endpoint=endpoint, api_key="key")


def test_a_template_is_for_models_that_take_text(openai_stub):
    with pytest.raises(sgl.ArgumentError, match=r"chat_template is 'chatml', and chat model 'm' .* takes messages"):
        sgl.OpenAI("m", chat_template="chatml", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(sgl.ArgumentError, match="chat_template is 'nothing'; it must be a ChatTemplate, or one of"):
        sgl.OpenAI("m", False, "nothing", base_url="http://127.0.0.1:1/v1")
    with openai_stub(lambda body: "yes") as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        with pytest.raises(sgl.ArgumentError, match=r"chat_template is 'chatml', and chat model 'm' .* takes messages"):
            plain.run(backend=backend, chat_template="chatml")
        backend.close()
