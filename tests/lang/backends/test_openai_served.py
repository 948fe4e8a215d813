"""`sgl.OpenAI` on the real server with the small real model."""

import json
from collections.abc import Iterator

import pytest
from pydantic import BaseModel, Field

import sgl
from fakes.server_process import REAL, ServerProcess

pytestmark = [pytest.mark.model, pytest.mark.timeout(120)]


class Person(BaseModel):
    name: str = Field(max_length=12)
    married: bool


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ServerProcess("--max-total-tokens", "4096", model_path="smollm2", main=REAL)
    try:
        server.wait_for_line("serving url=")
        yield f"{server.url}/v1"
    finally:
        server.close()


def test_a_served_model_chats_through_the_official_client(url):
    @sgl.function
    def program(s):
        s += sgl.user("Name the capital of France.")
        s += sgl.assistant(sgl.gen("city", max_tokens=16, temperature=0))
        s += sgl.user("Invent a person.")
        s += sgl.assistant(sgl.gen("person", type=Person, max_tokens=80, temperature=0))

    backend = sgl.OpenAI("smollm2", base_url=url)
    whole = program.run(backend=backend)
    streamed = program.run(backend=backend, stream=True)
    assert "Paris" in whole["city"]
    assert isinstance(whole["person"], Person)
    assert "".join(streamed.text_iter()) == streamed.text() == whole.text()
    meta = streamed.get_meta_info("person")
    assert meta["cached_tokens"] > 10
    assert backend.token_usage.num_calls == 4
    backend.close()


def test_a_served_model_completes_text_under_a_regex(url):
    @sgl.function
    def program(s):
        s += "The year is" + sgl.gen("year", regex=r" [12]\d\d\d", return_logprob=True)
        s += " and as JSON: " + sgl.gen("person", json_schema=Person, max_tokens=80, temperature=0, top_k=3)

    backend = sgl.OpenAI("smollm2", False, base_url=url, extensions=("regex", "json_schema", "top_k"))
    state = program.run(backend=backend, seed=1)
    assert 1000 <= int(state["year"]) <= 2999
    assert len(state.get_meta_info("year")["output_token_logprobs"]) == 5
    assert json.loads(state["person"]).keys() == {"name", "married"}
    backend.close()
