"""schemathesis makes requests of the server's own OpenAPI document, and holds the replies to it."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fakes.server_process import REAL, ServerProcess
from fakes.server_watch import ServerWatch

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
FLAGS = ["--max-running-requests", "16", "--grammar-cache-size", "32"]
# A profile would be written into a folder of any name, and so would dumps of requests.
LEFT_OUT = ("/start_profile", "/stop_profile", "/configure_logging")


@pytest.fixture(scope="module")
def scripted() -> Iterator[ServerWatch]:
    yield from started("--tool-call-parser", "hermes", main="fakes.hashed_serve")


@pytest.fixture(scope="module")
def real() -> Iterator[ServerWatch]:
    yield from started("--max-total-tokens", "2048", "--context-length", "96", model_path="smollm2", main=REAL)


def started(*flags: str, **options: Any) -> Iterator[ServerWatch]:
    server = ServerProcess(*FLAGS, *flags, **options)
    try:
        server.wait_for_line("serving url=")
        yield ServerWatch(server)
    finally:
        server.close()


def fuzz(watch: ServerWatch, *, examples: int, seed: int, limit_s: float = 20) -> int:
    """Send examples to each operation; how many were sent.

    Args:
        watch: The server.
        examples: For each operation.
        seed: Of the examples.
        limit_s: How long a reply may take.
    """
    schema = schemathesis.openapi.from_url(watch.server.url + "/openapi.json")
    num_sent = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in LEFT_OUT:
            continue

        @seeded(seed)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            nonlocal num_sent
            num_sent += 1
            case.call_and_validate(checks=CHECKS, timeout=limit_s, session=session)

        with requests.Session() as session:
            check()
            if operation.path == "/pause_generation":
                assert requests.post(watch.server.url + "/continue_generation", timeout=20).ok
    watch.assert_whole()
    return num_sent


def test_replies_are_as_the_document_says(scripted: ServerWatch) -> None:
    assert fuzz(scripted, examples=4, seed=1) > 100


@pytest.mark.slow
def test_many_replies_are_as_the_document_says(scripted: ServerWatch) -> None:
    assert fuzz(scripted, examples=150, seed=2) > 4000


@pytest.mark.slow
@pytest.mark.model
def test_replies_of_a_model_are_as_the_document_says(real: ServerWatch) -> None:
    assert fuzz(real, examples=20, seed=3, limit_s=120) > 600
