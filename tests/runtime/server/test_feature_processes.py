"""Sessions, pauses and hidden states through the real processes of `sgl serve`."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from fakes.byte_tokenizer import BOS_ID
from fakes.hashed_composition import NUM_DRAWN
from fakes.scripted_executor import logprob_of, next_token
from fakes.server_process import ServerProcess

FLAGS = (
    "--enable-return-hidden-states",
    "--log-requests",
    "--decode-log-interval",
    "1",
    "--chunked-prefill-size",
    "16",
)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    server = ServerProcess(*FLAGS, main="fakes.hashed_serve")
    try:
        server.wait_for_line("serving url=")
        yield server
    finally:
        server.close()


def post(server: ServerProcess, path: str, payload: Any) -> Any:
    response = requests.post(server.url + path, json=payload, timeout=20)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_conversation_over_http(server: ServerProcess) -> None:
    session_id = post(server, "/open_session", {"capacity_of_str_len": 500, "timeout": 60})
    sampling = {"temperature": 0, "max_new_tokens": 3}
    ids: list[int] = [BOS_ID]
    for text in ("hello", " and", " so on"):
        turn = {"text": text, "rid": text, "sampling_params": sampling, "session_params": {"id": session_id}}
        reply = post(server, "/generate", {**turn, "return_hidden_states": True})
        ids += [*text.encode()]
        assert reply["meta_info"]["prompt_tokens"] == len(ids)
        assert reply["meta_info"]["hidden_states"][0] == [[place, token] for place, token in enumerate(ids)]
        assert reply["output_ids"][0] == next_token(ids, NUM_DRAWN)
        ids += reply["output_ids"]
    unknown = requests.post(
        server.url + "/generate", json={"text": "a", "session_params": {"id": session_id, "rid": "x"}}, timeout=20
    )
    assert unknown.status_code == 400
    assert unknown.json()["error"]["param"] == "session_params.rid"
    post(server, "/close_session", {"session_id": session_id})
    assert requests.post(server.url + "/close_session", json={"session_id": session_id}, timeout=20).status_code == 400


def test_pauses_and_flushes_over_http(server: ServerProcess) -> None:
    for mode in ("abort", "retract", "in_place"):
        assert post(server, "/pause_generation", {"mode": mode})["success"]
        assert requests.get(server.url + "/health", timeout=20).status_code == 200
        assert post(server, "/flush_cache", {"timeout": 5})["success"]
        assert post(server, "/continue_generation", {})["success"]
    server.wait_for_line("decode batch=1 ")
    server.wait_for_line("request ended rid='hello' reason=length prompt_tokens=6 ")


@pytest.mark.parametrize("count", [1, 3])
def test_echo_scores_the_prompt_in_pieces_and_cached(server: ServerProcess, count: int) -> None:
    text = "the quick brown fox jumps over the lazy dog"
    ids = [BOS_ID, *text.encode()]
    payload = {"model": "m", "prompt": text, "echo": True, "logprobs": 1, "max_tokens": 0, "n": count}
    for _ in range(2):
        reply = post(server, "/v1/completions", payload)
        assert len(reply["choices"]) == count
        for choice in reply["choices"]:
            assert choice["text"] == text
            assert choice["logprobs"]["token_logprobs"] == [
                logprob_of(ids[:place], ids[place]) for place in range(1, len(ids))
            ]
