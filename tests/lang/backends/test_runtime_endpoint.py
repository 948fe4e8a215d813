import re
import socket

import pytest

import sgl

pytestmark = pytest.mark.timeout(30)


@sgl.function
def everything(s):
    s += sgl.user("Name a fruit: ")
    with s.assistant():
        s += sgl.gen("fruit", stop="!")
    forks = s.fork(2)
    forks += lambda index: f"{index}:" + sgl.gen("v", regex=re.escape(f"é\u2028{index}"))
    forks.join()
    s += sgl.select("x", ["red", "green"])


@pytest.mark.parametrize("stream", [False, True])
def test_programs_come_to_the_same_over_http_and_in_process(stream, protocol_server):
    script = sgl.ScriptedBackend("apple! and more")
    expected = everything.run(backend=sgl.ScriptedBackend("apple! and more"))
    with protocol_server(script.model) as server, sgl.RuntimeEndpoint(server.url + "/", api_key="key") as endpoint:
        state = everything.run(backend=endpoint, stream=stream)
        assert state.text() == expected.text()
        assert state["v"] == expected["v"] == ["é\u20280", "é\u20281"]
        assert state.messages() == expected.messages()
        assert state.get_meta_info("x")["scores"] == expected.get_meta_info("x")["scores"]
        assert sgl.flush_cache(endpoint) is True
        assert sgl.get_server_info(endpoint)["num_calls"] > 0
        assert endpoint.model_info["model_path"] == "scripted"
        assert set(server.headers_seen) == {"Bearer key"}


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_the_server_arrives_with_its_code(stream, protocol_server):
    def refuse(call):
        raise sgl.BackendError("no such grammar", status=400, code="bad_grammar", param="sampling_params.regex")

    @sgl.function
    def program(s):
        s += "p" + sgl.gen("x")

    with protocol_server(sgl.ScriptedBackend(refuse).model) as server, sgl.RuntimeEndpoint(server.url) as endpoint:
        state = program.run(backend=endpoint, stream=stream)
        with pytest.raises(sgl.ProgramError, match=r"gen 'x' at .*: no such grammar") as caught:
            state["x"]
        cause = caught.value.__cause__
        assert isinstance(cause, sgl.BackendError)
        assert (cause.code, cause.param) == ("bad_grammar", "sampling_params.regex")


def test_a_stream_that_ends_early_is_an_error(protocol_server):
    class Cut:
        """A model whose streams lack their end."""

        def __init__(self):
            self.script = sgl.ScriptedBackend("abcdef").model

        async def call(self, path, payload):
            return await self.script.call(path, payload)

        async def stream(self, path, payload):
            async for event in self.script.stream(path, payload):
                if event["meta_info"]["finish_reason"] is None:
                    yield event

    @sgl.function
    def program(s):
        s += "p" + sgl.gen("x")

    with protocol_server(Cut(), breaks_off=True) as server, sgl.RuntimeEndpoint(server.url) as endpoint:
        state = program.run(backend=endpoint, stream=True)
        with pytest.raises(sgl.ProgramError, match="ended before the output was complete"):
            list(state.text_iter())
        assert state.text(partial=True) == "pabcdef"


def test_no_server_is_said_at_once():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        with pytest.raises(sgl.BackendError, match=f"no server at http://127.0.0.1:{port} .*start one with: sgl serve"):
            sgl.RuntimeEndpoint(f"http://127.0.0.1:{port}")
    with pytest.raises(sgl.ArgumentError, match="base_url is 'localhost:30000'"):
        sgl.RuntimeEndpoint("localhost:30000")


def test_what_no_request_could_carry_is_refused_before_one_is_sent():
    with pytest.raises(sgl.ArgumentError, match="api_key is not what a header can hold") as caught:
        sgl.RuntimeEndpoint("http://127.0.0.1:9", api_key="secret\n")
    assert "secret" not in str(caught.value)
    with pytest.raises(sgl.ArgumentError, match="timeout_s is 0; it must be a number of seconds above 0, or None"):
        sgl.RuntimeEndpoint("http://127.0.0.1:9", timeout_s=0)
    with pytest.raises(sgl.ArgumentError, match="at position 1: half of a surrogate pair"):
        sgl.user("a\ud800")
