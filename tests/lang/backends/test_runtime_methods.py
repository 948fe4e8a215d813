"""What `Runtime` answers without a program (A1), on a served script."""

import asyncio
import json

import pytest

import sgl
from sgl.backends.launch import Runtime

pytestmark = pytest.mark.timeout(20)


class Served:
    """A server's transport with the paths that `Runtime` asks for."""

    def __init__(self):
        self.model, self.asked = sgl.ScriptedBackend("ok").model, []

    async def call(self, path, payload):
        self.asked.append(path)
        if path in ("/encode", "/start_profile", "/stop_profile"):
            return {"path": path, "sent": payload}
        return await self.model.call(path, payload)

    def stream(self, path, payload):
        return self.model.stream(path, payload)


def test_a1_runtime_answers_without_a_program(protocol_server):
    served = Served()
    with protocol_server(served) as server:
        runtime = object.__new__(Runtime)
        runtime.endpoint = sgl.RuntimeEndpoint(server.url)
        reply = json.loads(runtime.generate("p", {"max_new_tokens": 5}))
        assert (reply["text"], reply["meta_info"]["prompt_tokens"]) == ("ok", 1)
        assert json.loads(runtime.encode("p"))["sent"] == {"text": "p"}
        runtime.start_profile()
        runtime.stop_profile()
        runtime.cache_prefix("a prefix")
        assert served.model.calls[-1].sampling == {"max_new_tokens": 0}
        runtime.endpoint.close()
    assert {"/start_profile", "/stop_profile", "/encode"} <= set(served.asked)


def test_a1_runtime_answers_tasks(protocol_server):
    async def main(runtime):
        pieces = [piece async for piece in runtime.async_generate("p", {"max_new_tokens": 5})]
        return pieces, await runtime.get_server_info()

    with protocol_server(Served()) as server:
        runtime = object.__new__(Runtime)
        runtime.endpoint = sgl.RuntimeEndpoint(server.url, chat_template_name="chatml")
        assert runtime.endpoint.chat_template.name == "chatml"
        pieces, info = asyncio.run(main(runtime))
        runtime.endpoint.close()
    assert ("".join(pieces), info["model_path"]) == ("ok", "scripted")
