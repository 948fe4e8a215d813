"""The OpenAPI document says what the server checks, field by field and range by range."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import requests

from fakes.chat_server import ChatServer
from sgl_runtime.sampling_params import SAMPLING_CHECKS
from sgl_runtime.server.app import all_routes
from sgl_runtime.server.web_routes import WebPage

REQUIRED: dict[str, dict[str, Any]] = {
    "/role_affixes": {"role": "user"},
    "/tokenize": {"text": "a"},
    "/v1/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [97]},
    "/v1/detokenize": {"tokens": [97]},
    "/open_session": {"capacity_of_str_len": 10},
    "/close_session": {"session_id": "a"},
    "/parse_function_call": {"text": "a", "tool_call_parser": "hermes"},
    "/separate_reasoning": {"text": "a", "reasoning_parser": "qwen3"},
    "/validate_grammar": {"regex": "a"},
    "/inspect_request": {"rid": "a"},
    "/abort_request": {"rid": "a"},
    "/generate": {"text": "say:a"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2},
    "/v1/completions": {"prompt": "say:a"},
    "/v1/responses": {"input": "a", "store": False, "include": ["message.output_text.logprobs"]},
    "/v1/responses/input_tokens": {"input": "a", "include": ["message.output_text.logprobs"]},
    "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 9},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "a"}]},
}
# These need a model that makes vectors; their bodies are checked before that is.
VECTORS = ("/encode", "/v1/embeddings", "/classify", "/v1/classify", "/rerank", "/v1/rerank", "/score", "/v1/score")


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(tool_call_parser="hermes", reasoning_parser="qwen3") as server:
        server.say("a")
        yield server


@pytest.fixture(scope="module")
def document(server: ChatServer) -> dict[str, Any]:
    found: dict[str, Any] = requests.get(server.url + "/openapi.json", timeout=20).json()
    return found


@pytest.fixture(scope="module")
def client() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def shapes(document: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The schema, or all its alternatives."""
    schema = resolved(document, schema)
    if "anyOf" not in schema or "properties" in schema:
        return [schema]
    return [shape for option in schema["anyOf"] for shape in shapes(document, option)]


def bodies(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        path: item["post"]["requestBody"]["content"]["application/json"]["schema"]
        for path, item in document["paths"].items()
        if "requestBody" in item.get("post", {})
    }


def known_fields(answer: requests.Response) -> set[str]:
    assert answer.status_code == 400, answer.text
    names = answer.json()["error"]["message"].partition("is not a known field; known: ")[2]
    return set(names.split(", ")) if names else set()


def test_it_is_a_document_with_all_paths_of_the_server(server: ChatServer, document: dict[str, Any]) -> None:
    routes = {
        (route.path.replace(":path", ""), method.lower())
        for route in all_routes(server.api, WebPage({}), server.books)
        for method in route.methods or ()
        if route.path != "/openapi.json" and method != "HEAD"
    }
    described = {(path, method) for path, item in document["paths"].items() for method in item}
    assert described == routes
    for item in document["paths"].values():
        for operation in item.values():
            assert re.fullmatch(r"[A-Z].*\.", operation["summary"]), operation
            assert {"200", "400", "401", "413", "503"} <= operation["responses"].keys()


def test_schemas_are_sound_and_refer_to_what_is_there(document: dict[str, Any]) -> None:
    components = document["components"]["schemas"]

    def check(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                kind, name = value["$ref"].split("/")[-2:]
                assert name in document["components"][kind]
            for inner in value.values():
                check(inner)
        elif isinstance(value, list):
            for inner in value:
                check(inner)

    check(document)
    for schema in [*components.values(), *bodies(document).values()]:
        jsonschema.Draft202012Validator.check_schema(schema)


def test_the_document_names_the_fields_that_are_taken(
    server: ChatServer, document: dict[str, Any], client: requests.Session
) -> None:
    for path, schema in bodies(document).items():
        for shape in shapes(document, schema):
            fields = shape["properties"]
            given = {name: 0 for name in shape.get("required", ()) if path == "/v1/score" or path == "/score"}
            answer = client.post(server.url + path, json={**given, "zzzzzz": 1}, timeout=20)
            assert known_fields(answer) == fields.keys(), path


def test_the_document_names_the_fields_inside_of_fields(
    server: ChatServer, document: dict[str, Any], client: requests.Session
) -> None:
    text = {"text": "say:a"}
    chat = REQUIRED["/v1/chat/completions"]
    for path, outer, field, component in (
        ("/generate", text, "sampling_params", "SamplingParams"),
        ("/generate", text, "session_params", "SessionTurn"),
        ("/v1/chat/completions", {**chat, "stream": True}, "stream_options", None),
        ("/v1/chat/completions", chat, "structured_outputs", None),
    ):
        answer = client.post(server.url + path, json={**outer, field: {"zzzzzz": 1}}, timeout=20)
        if component is None:
            (shape, _) = shapes(document, resolved(document, bodies(document)[path])["properties"][field])
        else:
            shape = document["components"]["schemas"][component]
        assert known_fields(answer) == shape["properties"].keys()
    assert document["components"]["schemas"]["SamplingParams"]["properties"].keys() == SAMPLING_CHECKS.keys()


def edges(schema: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Numbers at the edges of a range: inside and outside."""
    inside, outside = [], []
    step = 1 if schema["type"] == "integer" else 1e-6
    for name, direction in (("minimum", -1), ("maximum", 1), ("exclusiveMinimum", 0)):
        if name in schema:
            outside.append(schema[name] + direction * step)
            inside.append(schema[name] if direction else schema[name] + step)
    return inside, outside


def ranges(document: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], list[int]]]:
    """Fields that hold a number of a range, and numbers that are allowed besides."""
    for name, field in resolved(document, schema)["properties"].items():
        options = [option for option in shapes(document, field) if option != {"type": "null"}]
        numbers = [option for option in options if option.get("type") in ("integer", "number")]
        if numbers and ("minimum" in numbers[0] or "exclusiveMinimum" in numbers[0]):
            yield name, numbers[0], [option["const"] for option in options if "const" in option]


def refused_param(answer: requests.Response) -> str | None:
    """The field that is out of its range; None where another thing is wrong, or none."""
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 200:
        return None
    error: dict[str, Any] = answer.json()["error"]
    is_range = re.search(r"must be (an integer|a number|an object|a token id)", error["message"])
    # Anthropic's envelope names no field but in the message.
    return str(error.get("param") or error["message"].partition(" ")[0]) if is_range else None


def test_ranges_are_those_that_are_checked(
    server: ChatServer, document: dict[str, Any], client: requests.Session
) -> None:
    num_checked = 0
    for path, schema in bodies(document).items():
        if path in VECTORS or path == "/flush_cache":
            continue
        for name, field, _ in ranges(document, shapes(document, schema)[0]):
            given = {} if name == "key" else REQUIRED.get(path, {})
            inside, outside = edges(field)
            for value in inside:
                answer = client.post(server.url + path, json={**given, name: value}, timeout=20)
                assert refused_param(answer) != name, (path, name, value, answer.text)
            for value in outside:
                answer = client.post(server.url + path, json={**given, name: value}, timeout=20)
                assert refused_param(answer) == name, (path, name, value, answer.text)
                num_checked += 1
    assert num_checked > 40


def test_ranges_of_sampling_parameters_are_those_that_are_checked(
    server: ChatServer, document: dict[str, Any], client: requests.Session
) -> None:
    num_checked = 0
    for name, field, others in ranges(document, document["components"]["schemas"]["SamplingParams"]):
        inside, outside = edges(field)
        for value in [*inside, *others, *outside]:
            params = {"max_new_tokens": 1, name: value}
            if name == "n" and value > 1:
                continue
            answer = client.post(
                server.url + "/generate", json={"text": "say:a", "sampling_params": params}, timeout=20
            )
            expected = None if value in inside or value in others else f"sampling_params.{name}"
            assert refused_param(answer) == expected, (name, value, answer.text)
            num_checked += 1
    assert num_checked > 25
