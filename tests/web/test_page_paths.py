"""The native paths that the web page needs: validation of constraints, the load, and a look into requests."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from fakes.byte_tokenizer import VOCABULARY
from fakes.hostile_constraints import known_specs
from fakes.scripted_server import ScriptedServer
from sgl_runtime.config import GrammarConfig
from sgl_runtime.grammar.base import GrammarSpec
from sgl_runtime.grammar.constraint_check import check, place_of
from sgl_runtime.ipc.messages import TokenizedRequest
from sgl_runtime.sampling_params import SamplingParams
from sgl_runtime.server.generate_request import parse_generate
from sgl_runtime.server.pending_reply import PendingReply
from sgl_runtime.server.request_history import RequestHistory
from sgl_runtime.server.request_watch import WatchedRequest


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(request_history=3) as server:
        yield server


def post(server: ScriptedServer, path: str, body: Any, **options: Any) -> requests.Response:
    return requests.post(server.url + path, json=body, timeout=60, **options)


def history(server: ScriptedServer) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = post(server, "/request_history", {}).json()["ended"]
    return entries


@pytest.mark.parametrize(
    ("constraint", "place"),
    [
        ({"regex": "a(b"}, {"position": 1}),
        ({"json_schema": {"properties": {"a": {"type": "strin"}}}}, {"path": "#/properties/a/type"}),
        ({"json_schema": '{"type": '}, {"line": 1, "column": 10}),
        ({"choices": []}, {}),
        ({"ebnf": "root ::= x"}, {}),
        ({"ebnf": "start: foo"}, {"line": 1, "column": 8}),
        ({"json_schema": {"type": "integer", "minimum": 5, "maximum": 3}}, {}),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    constraint: dict[str, Any], place: dict[str, Any], server: ScriptedServer
) -> None:
    reply = post(server, "/validate_grammar", constraint).json()
    assert reply["valid"] is False
    assert reply["backend"] is None
    assert reply["place"] == place
    assert reply["problems"][0] == {"message": reply["message"], "place": place}
    assert reply["message"]


@pytest.mark.parametrize(
    ("constraint", "backend"),
    [
        ({"regex": "[a-z]+"}, "fsm"),
        ({"json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}, "fsm"),
        ({"choices": ["yes", "no"]}, "fsm"),
        ({"ebnf": 'root ::= "a" root | "b"'}, "llguidance"),
        (
            {"structural_tag": {"structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<a"]}},
            "fsm",
        ),
    ],
)
def test_what_is_right_is_said_with_what_enforces_it(
    constraint: dict[str, Any], backend: str, server: ScriptedServer
) -> None:
    reply = post(server, "/validate_grammar", constraint).json()
    assert (reply["valid"], reply["message"], reply["backend"]) == (True, None, backend)
    assert (reply["states"] is not None) == (backend == "fsm")


def test_lenient_schemas_are_valid_and_name_what_is_left_out(server: ScriptedServer) -> None:
    schema = {"type": "array", "items": {"type": "string", "pattern": "(a)\\1"}}
    strict = post(server, "/validate_grammar", {"json_schema": schema}).json()
    assert (strict["valid"], strict["place"]["path"]) == (False, "#/items/pattern")
    lenient = post(server, "/validate_grammar", {"json_schema": schema, "json_schema_lenient": True}).json()
    assert lenient["valid"] is True
    assert [each["path"] for each in lenient["relaxed"]] == ["#/items/pattern"]


def test_words_without_effect_are_named(server: ScriptedServer) -> None:
    reply = post(server, "/validate_grammar", {"json_schema": {"type": "string", "maxLenght": 3}}).json()
    assert reply["valid"] is True
    assert reply["unknown"] == [{"path": "#/maxLenght", "meant": "maxLength"}]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "choices"),
        ({"regex": "a", "ebnf": "b"}, "choices"),
        ({"regex": 3}, "regex"),
        ({"regex": ""}, "regex"),
        ({"regex": "a" * 1_000_001}, "regex"),
        ({"regex": "a", "json_schema_lenient": 1}, "json_schema_lenient"),
        ({"regexp": "a"}, "regexp"),
    ],
)
def test_wrong_bodies_are_refused(body: dict[str, Any], param: str, server: ScriptedServer) -> None:
    response = post(server, "/validate_grammar", body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_the_backend_of_the_server_decides() -> None:
    ebnf = GrammarSpec("ebnf", 'root ::= "a"')
    assert check(ebnf, GrammarConfig())["backend"] == "llguidance"
    assert check(ebnf, GrammarConfig(grammar_backend="fsm"))["valid"] is False
    regex = GrammarSpec("regex", "a+")
    assert check(regex, GrammarConfig(grammar_backend="llguidance"))["backend"] == "llguidance"
    outlines = check(regex, GrammarConfig(grammar_backend="outlines"))
    assert (outlines["backend"], bool(outlines["note"])) == ("outlines", True)


def test_places_are_read_from_messages() -> None:
    assert place_of("#/a~1b/0 cannot be enforced: regex: bad (at position 3, 'x')") == {
        "path": "#/a~1b/0",
        "position": 3,
    }
    assert place_of("json_schema: # is [1]; a schema is an object") == {"path": "#"}
    assert place_of("json_schema is not JSON: Expecting value at line 2, column 10") == {"line": 2, "column": 10}
    assert place_of("no output at all") == {}


SLOW = {"json_schema": {"uniqueItems": True, "items": {"enum": list(range(20))}}}


def test_a_check_whose_client_leaves_is_ended_and_makes_room(server: ScriptedServer) -> None:
    address = ("127.0.0.1", server.port)
    body = requests.Request("POST", server.url + "/validate_grammar", json=SLOW).prepare().body
    assert isinstance(body, bytes)
    head = f"POST /validate_grammar HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    clients = [socket.create_connection(address) for _ in range(2)]
    for client in clients:
        client.sendall(head + body)
    begin = time.monotonic()
    # With both places taken this one waits, until the others are ended.
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(post, server, "/validate_grammar", {"regex": "a"})
        for client in clients:
            client.close()
        assert waiting.result().json()["valid"] is True
    assert time.monotonic() - begin < 4.5, "a slow check takes 5 seconds"


@pytest.mark.slow
def test_hostile_constraints_get_an_answer_in_time_and_too_many_are_refused() -> None:
    with ScriptedServer() as server, ThreadPoolExecutor(24) as threads:
        replies = list(threads.map(lambda _: post(server, "/validate_grammar", SLOW).status_code, range(24)))
        assert replies.count(503) == 24 - 18
        assert replies.count(200) == 18
        for spec in known_specs():
            body = {spec.kind: json.loads(spec.text) if spec.kind == "choices" else spec.text}
            response = post(server, "/validate_grammar", body)
            assert response.status_code in (200, 400), spec.text[:100]
            assert post(server, "/generate", {"text": "say:a"}).json()["text"] == "a"


def test_load_is_told_in_one_reply(server: ScriptedServer) -> None:
    before = requests.get(server.url + "/live_stats", timeout=10).json()
    post(server, "/generate", {"text": "say:hello"})
    after = requests.get(server.url + "/live_stats", timeout=10).json()
    assert after["scheduler"]["num_running"] == 0
    assert after["totals"]["requests"] == before["totals"]["requests"] + 1
    assert after["totals"]["generation_tokens"] == before["totals"]["generation_tokens"] + len("hello") + 1
    for name, grown in (("ttft", 1), ("itl", len("hello")), ("queue", 1), ("e2e", 1)):
        found = after["latencies"][name]
        assert len(found["counts"]) == len(found["bounds"]) + 1
        assert found["counts"] == sorted(found["counts"])
        assert found["counts"][-1] - before["latencies"][name]["counts"][-1] == grown


def test_history_keeps_the_latest_of_others_and_those_of_the_page(server: ScriptedServer) -> None:
    for number in range(5):
        post(server, "/generate", {"text": "say:a", "rid": f"other-{number}"})
    post(server, "/generate", {"text": "say:a", "rid": "web-1"})
    post(server, "/generate", {"text": "say:a", "rid": "other-5"})
    rids = [entry["rid"] for entry in history(server)]
    assert [rid for rid in rids if rid.startswith("other")] == ["other-5", "other-4", "other-3"]
    assert "web-1" in rids


def test_a_request_is_shown_token_by_token(server: ScriptedServer) -> None:
    body = {"text": 'é say:{"a":1}', "rid": "look", "sampling_params": {"regex": ".*", "temperature": 0.5}}
    post(server, "/generate", body)
    found = post(server, "/inspect_request", {"rid": "look"}).json()
    assert (found["path"], found["state"], found["finish"]["type"]) == ("/generate", "stop", "stop")
    assert found["prompt"]["total"] == found["prompt_tokens"] == len(found["prompt"]["ids"])
    assert "".join(found["prompt"]["texts"]) == '<s>é say:{"a":1}'
    # Of the two tokens of a character the second one has it.
    assert found["prompt"]["texts"][:3] == ["<s>", "", "é"]
    assert found["prompt"]["special"] == [0]
    assert found["cached_tokens"] == 3
    output = found["output"]
    assert "".join(output["texts"]) == '{"a":1}</s>'
    assert [output["texts"][place] for place in output["forced"]] == ["{", '"', '"', ":", "}"]
    assert found["grammar"] == {
        "kind": "regex",
        "constraint": ".*",
        "backend": "fsm",
        "compile_seconds": 0.25,
        "relaxed": [],
    }
    assert found["sampling"]["temperature"] == 0.5
    assert "regex" not in found["sampling"]
    timing = found["timing"]
    assert 0 <= timing["queue"] <= timing["first_token"] <= timing["total"]


def test_tokens_come_in_windows(server: ScriptedServer) -> None:
    post(server, "/generate", {"text": "say:" + "abc" * 10, "rid": "window"})
    whole = post(server, "/inspect_request", {"rid": "window"}).json()
    part = post(server, "/inspect_request", {"rid": "window", "prompt_begin": 5, "output_begin": 3, "limit": 4}).json()
    assert part["prompt"]["ids"] == whole["prompt"]["ids"][5:9]
    assert (part["output"]["begin"], part["output"]["texts"]) == (3, ["a", "b", "c", "a"])
    assert part["output"]["total"] == 31
    by_key = post(server, "/inspect_request", {"key": whole["key"]}).json()
    assert by_key == whole


def test_a_running_request_is_listed_and_shown() -> None:
    with ScriptedServer(request_history=2) as server:
        server.scheduler.hold_after = 3
        with requests.post(
            server.url + "/generate", json={"text": "FOREVER", "stream": True, "rid": "r"}, stream=True, timeout=20
        ) as stream:
            lines = stream.iter_lines(chunk_size=1)
            assert any(b'"xxx"' in line for line in lines)
            listed = post(server, "/request_history", {}).json()
            assert [(entry["rid"], entry["state"]) for entry in listed["running"]] == [("r", "running")]
            assert post(server, "/inspect_request", {"rid": "r"}).json()["output"]["texts"] == ["x", "x", "x"]
            post(server, "/abort_request", {"rid": "r"})
            list(lines)
        assert [(entry["rid"], entry["state"]) for entry in history(server)] == [("r", "abort")]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "rid"),
        ({"rid": "a", "key": 1}, "rid"),
        ({"rid": "never came"}, "rid"),
        ({"key": 10**9}, "key"),
        ({"key": -1}, "key"),
        ({"rid": "a", "limit": 0}, "limit"),
        ({"rid": "a", "prompt_begin": -1}, "prompt_begin"),
    ],
)
def test_wrong_looks_are_refused(body: dict[str, Any], param: str, server: ScriptedServer) -> None:
    response = post(server, "/inspect_request", body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_history_needs_the_admin_key_where_there_is_one() -> None:
    with ScriptedServer(api_key=("user",), admin_api_key="admin") as server:
        for path, body in (("/request_history", {}), ("/inspect_request", {"rid": "a"})):
            assert post(server, path, body, headers={"x-api-key": "user"}).status_code == 401
            assert post(server, path, body, headers={"x-api-key": "admin"}).status_code != 401


def test_history_is_bounded_in_bytes() -> None:
    history = RequestHistory(capacity=1000, max_bytes=100_000)
    for number in range(50):
        request = watched(f"r{number}", prompt=[1] * 5_000)
        history.received(request)
        history.ended(request, reason="stop")
    records = history.ended_requests(1000)
    assert 0 < len(records) < 6
    assert sum(record.num_bytes for record in records) <= 100_000
    assert records[0].rid == "r49"
    huge = watched("huge", prompt=[1] * 50_000)
    history.received(huge)
    history.ended(huge, reason="stop")
    assert history.by_rid("huge") is None


def watched(rid: str, *, prompt: list[int]) -> WatchedRequest:
    request = parse_generate({"input_ids": prompt, "rid": rid}).requests[0]
    pending = PendingReply(request, VOCABULARY, index=0)
    pending.set_prompt(prompt, [])
    message = TokenizedRequest(rid=rid, input_ids=prompt, sampling=SamplingParams(max_new_tokens=4))
    return WatchedRequest(message, pending, None, time.monotonic())
